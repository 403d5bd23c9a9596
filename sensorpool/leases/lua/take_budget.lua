-- take_budget(budget, busy; asker, wanted, groups, waited_ms, per_second, at_once, waits_ms, busy_ms, poke ...) -> {granted, wait_ms}
--
-- Take pokes out of a budget that all workers share: up to `wanted`. 0 for `per_second` or `at_once` is no such limit.
-- `asker` is a shard range, for which `groups` wait, the first of them since `waited_ms`. `wait_ms` says when to ask for
-- the others.
--
-- The rate is a token bucket that holds what three quarters of a second allow, or two. `at_once` is a semaphore: `poke`
-- are the names of the wanted pokes, each removed when it has ended, or after `busy_ms`.
--
-- Fields: "bucket" = "tokens at", "waits:ASKER" = "groups since expires".
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local wanted, groups, rate, at_once = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5] / 1000, tonumber(ARGV[6])
local granted, wait = wanted, 0

if at_once > 0 then
  redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
  granted = math.max(0, math.min(wanted, at_once - redis.call("ZCARD", KEYS[2])))
  wait = 250
end
if rate > 0 then
  local tokens, at = string.match(redis.call("HGET", KEYS[1], "bucket") or "", "^([%d.]+) (%d+)$")
  local most = math.max(2, 750 * rate)
  tokens = math.min(most, (tonumber(tokens) or most) + math.max(0, now - (tonumber(at) or now)) * rate)
  granted = math.min(granted, math.floor(tokens + 0.001))
  wait = math.max(wait, 500, 1 / rate)
  redis.call("HSET", KEYS[1], "bucket", string.format("%.3f %d", math.max(0, tokens - granted), now))
end
if at_once > 0 then
  for i = 1, granted do
    redis.call("ZADD", KEYS[2], now + ARGV[8], ARGV[8 + i])
  end
  redis.call("PEXPIRE", KEYS[2], ARGV[8])
end
local left = math.ceil(groups * (1 - granted / wanted))
redis.call("HSET", KEYS[1], "waits:" .. ARGV[1], string.format("%d %d %d", left, now - ARGV[4], now + ARGV[7]))
redis.call("PEXPIRE", KEYS[1], 86400000)
return { granted, granted < wanted and math.ceil(wait) or 0 }
