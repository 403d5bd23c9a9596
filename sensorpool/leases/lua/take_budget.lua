-- take_budget(budget; asker, wanted, per_second, at_once, done, kept_ms, stretch, poked, groups, holder) -> {granted, wait_ms}
--
-- Take pokes out of a budget that all workers share. `asker` is a shard range; 0 for `per_second` or `at_once` is no such
-- limit. `done` is how many of the pokes that the holder (a round of a job) had at once have ended since it asked last; those that
-- it does not give back end by themselves after `kept_ms`. A negative `wanted` is taken whatever is left, down to a debt of
-- five seconds: others wait for it then. It costs nothing while they wait in line: they would wait for ever.
-- `stretch` is the sum of the stretches of the `poked` groups that were poked since the asker asked last, and `groups` is
-- how many wait with those that are wanted.
--
-- The rate is a bucket that holds what three quarters of a second allow. Askers that find too little in it wait in a line,
-- half a second behind each other: each has a moment of its own. Before that moment it gets nothing.
--
-- Fields: "bucket" = "tokens at", "line" = the moment after the last one, "turn:ASKER" = its moment, "busy:HOLDER" =
-- "count expires", "waits:ASKER" = "count at", "stretch" = "mean weight".
if redis.call("TYPE", KEYS[1]).ok ~= "hash" then
  redis.call("DEL", KEYS[1])
end
local time = redis.call("TIME")
local now = time[1] * 1000 + time[2] / 1000
local asker, holder, wanted = ARGV[1], ARGV[10], tonumber(ARGV[2])
local rate, at_once, done, kept = tonumber(ARGV[3]) / 1000, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local LONGEST_WEIGHT, FORGET = 500, 120000

local function two(field)
  local first, second = string.match(redis.call("HGET", KEYS[1], field) or "", "^(%-?[%d.]+) ([%d.]+)$")
  return tonumber(first), tonumber(second)
end

local function put(field, first, second)
  redis.call("HSET", KEYS[1], field, string.format("%.3f %.3f", first, second))
end

local is_forced = wanted < 0
wanted = math.abs(wanted)
local granted, wait = wanted, 0

if at_once > 0 then
  local busy, own, fields = 0, 0, redis.call("HGETALL", KEYS[1])
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 5) == "busy:" then
      local count, expires = string.match(fields[i + 1], "^([%d.]+) ([%d.]+)$")
      count, expires = tonumber(count), tonumber(expires)
      if not count or expires < now or expires > now + 100 * kept then
        redis.call("HDEL", KEYS[1], fields[i])
      elseif fields[i] == "busy:" .. holder then
        own = math.max(0, count - done)
      else
        busy = busy + count
      end
    end
  end
  if not is_forced then
    granted = math.max(0, math.min(granted, at_once - busy - own))
  end
  if granted < wanted then
    wait = 250
  end
  if own > 0 or granted > 0 then
    put("busy:" .. holder, own, now + kept)
  else
    redis.call("HDEL", KEYS[1], "busy:" .. holder)
  end
end

if rate > 0 then
  local most, span = math.max(1, rate * 750), math.max(1, rate * 500) / rate
  local tokens, at = two("bucket")
  if not tokens or at > now + 1000 then
    tokens, at = most, now
  end
  tokens = math.min(most, tokens + math.max(0, now - at) * rate)
  local turn = tonumber(redis.call("HGET", KEYS[1], "turn:" .. asker) or "")
  local line = tonumber(redis.call("HGET", KEYS[1], "line") or "") or 0
  if line > now + 1000 * span + FORGET then
    line = 0
  end
  if turn and (turn > line or turn < now - FORGET) then
    turn = nil
  end
  if is_forced then
    if line <= now - 1000 then
      tokens = math.max(tokens - wanted, math.min(tokens, -math.max(1, 5000 * rate)))
    end
  elseif granted > 0 then
    local may = (turn and turn <= now) or (not turn and line <= now)
    local some = may and math.max(0, math.min(granted, math.floor(tokens + 0.001))) or 0
    if some < granted then
      if not turn or turn <= now then
        local first = math.max(line, now) + span
        if tokens < 0 then
          first = math.max(first, now - tokens / rate)
        end
        turn = first
        redis.call("HSET", KEYS[1], "line", string.format("%.3f", first), "turn:" .. asker, string.format("%.3f", first))
      end
      wait = math.max(wait, turn - now)
    elseif turn and turn <= now then
      redis.call("HDEL", KEYS[1], "turn:" .. asker)
    end
    granted, tokens = some, tokens - some
  end
  put("bucket", tokens, now)
end

if at_once > 0 and granted > 0 then
  local own = two("busy:" .. holder) or 0
  put("busy:" .. holder, own + granted, now + kept)
end
if granted < wanted then
  put("waits:" .. asker, tonumber(ARGV[9]) * (1 - granted / wanted), now)
elseif wanted > 0 then
  redis.call("HDEL", KEYS[1], "waits:" .. asker)
end
local poked = tonumber(ARGV[8])
if poked > 0 then
  local mean, weight = two("stretch")
  mean, weight = mean or 1, math.min(weight or 0, LONGEST_WEIGHT)
  put("stretch", (mean * weight + tonumber(ARGV[7])) / (weight + poked), weight + poked)
end
redis.call("PEXPIRE", KEYS[1], 86400000)
return { granted, math.ceil(wait) }
