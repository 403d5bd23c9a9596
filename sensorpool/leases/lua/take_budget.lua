-- take_budget(budget, busy; asker, wanted, groups, waited_ms, per_second, at_once, waits_ms, busy_ms, poke ...) -> {granted, wait_ms}
--
-- Take pokes out of a budget that all workers share: up to `wanted`. 0 for `per_second` or `at_once` is no such limit.
-- `asker` is a shard range, for which `groups` wait, the first of them since `waited_ms`. `wait_ms` says when to ask for
-- the others.
--
-- The rate is a token bucket that holds what three quarters of a second allow, or two. Askers take turns of half a second,
-- or a token: the one that was served the fewest gets what it wants of the tokens, and the others come again when those
-- before them have been. A bucket that is full is anybody's.
-- `at_once` is a semaphore: `poke` are the names of the wanted pokes, each removed when it has ended, or after `busy_ms`.
--
-- Fields: "bucket" = "tokens at", "waits:ASKER" = "groups since expires served".
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local own, wanted, groups, since = "waits:" .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), now - ARGV[4]
local rate, at_once = ARGV[5] / 1000, tonumber(ARGV[6])
local granted, wait = wanted, 0

if at_once > 0 then
  redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
  granted = math.max(0, math.min(wanted, at_once - redis.call("ZCARD", KEYS[2])))
  wait = 250
end

local left, served = string.match(redis.call("HGET", KEYS[1], own) or "", "^(%d+) %d+ %d+ (%d+)$")
served = tonumber(served) or 0
local others, least = {}, nil
local fields = redis.call("HGETALL", KEYS[1])
for i = 1, #fields, 2 do
  local waiting, expires, has = string.match(fields[i + 1], "^(%d+) %d+ (%d+) (%d+)$")
  if expires and tonumber(expires) < now then
    redis.call("HDEL", KEYS[1], fields[i])
  elseif expires and waiting ~= "0" and fields[i] ~= own then
    others[fields[i]] = tonumber(has)
    least = math.min(least or others[fields[i]], others[fields[i]])
  end
end
if least and (not left or left == "0") then
  served = math.max(served, least)
end

-- Count the askers that come before this one.
local function ahead()
  local found = 0
  for name, has in pairs(others) do
    if has < served or (has == served and name < own) then
      found = found + 1
    end
  end
  return found
end

if rate > 0 then
  local tokens, at = string.match(redis.call("HGET", KEYS[1], "bucket") or "", "^([%d.]+) (%d+)$")
  local most = math.max(2, 750 * rate)
  tokens = math.min(most, (tonumber(tokens) or most) + math.max(0, now - (tonumber(at) or now)) * rate)
  if ahead() == 0 or tokens >= most then
    granted = math.min(granted, math.floor(tokens + 0.001))
  else
    granted = 0
  end
  served = served + granted
  tokens = math.max(0, tokens - granted)
  if granted < wanted then
    wait = math.max(wait, math.max(500, 1 / rate) * math.max(1, ahead()))
  end
  redis.call("HSET", KEYS[1], "bucket", string.format("%.3f %d", tokens, now))
end

if at_once > 0 then
  for i = 1, granted do
    redis.call("ZADD", KEYS[2], now + ARGV[8], ARGV[8 + i])
  end
  redis.call("PEXPIRE", KEYS[2], ARGV[8])
end
left = math.ceil(groups * (1 - granted / wanted))
redis.call("HSET", KEYS[1], own, string.format("%d %d %d %d", left, since, now + ARGV[7], served))
redis.call("PEXPIRE", KEYS[1], 86400000)
return { granted, granted < wanted and math.ceil(wait) or 0 }
