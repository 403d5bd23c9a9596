-- acquire(lease, state, dirty, note, background, woken; token, ttl_ms)
--   -> {1, was_dirty, state, note, {process, groups, ...}, {id, ...}, now_ms} | {0, holder}
--
-- Acquire the lease if it is free, and return what the last holder left. A lease that never expires is not ours, and is
-- taken. The dirty flag is lowered before the load that follows, so a registration that comes during the load raises it
-- again.
local holder = redis.call("GET", KEYS[1])
if holder and redis.call("PTTL", KEYS[1]) ~= -1 then
  return { 0, holder }
end
redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
local dirty = redis.call("DEL", KEYS[3])
local woken = redis.call("SMEMBERS", KEYS[6])
redis.call("DEL", KEYS[6])
local time = redis.call("TIME")
return {
  1,
  dirty,
  redis.call("GET", KEYS[2]) or "",
  redis.call("GET", KEYS[4]) or "",
  redis.call("HGETALL", KEYS[5]),
  woken,
  string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000)),
}
