-- acquire(lease, state, dirty, note, suspects; token, ttl_ms) -> {1, was_dirty, state, note, {suspect, why, ...}} | {0, holder}
--
-- Take the lease if nobody holds it, and with it what the last holder left. The dirty flag is taken down before the
-- load that follows, so that a registration that comes during the load raises it again.
local holder = redis.call("GET", KEYS[1])
if holder then
  return { 0, holder }
end
redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
local dirty = redis.call("DEL", KEYS[3])
return {
  1,
  dirty,
  redis.call("GET", KEYS[2]) or "",
  redis.call("GET", KEYS[4]) or "",
  redis.call("HGETALL", KEYS[5]),
}
