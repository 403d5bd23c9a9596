-- acquire(lease, state, dirty, note, suspects, unsettled, late, failing; token, ttl_ms)
--   -> {1, was_dirty, state, note, {suspect, why, ...}, {unsettled, since and why, ...}, {late, ...},
--       {failing, since and last, ...}} | {0, holder}
--
-- Acquire the lease if it is free, and return what the last holder left. The dirty flag is lowered before the load
-- that follows, so a registration that comes during the load raises it again. Keys of a type that we never write, and
-- a lease without an expiry, are not ours: they count as lost, or they would stop the range for ever.
for i, wanted in ipairs({ "string", "string", false, "string", "hash", "hash", "set" }) do
  local found = redis.call("TYPE", KEYS[i]).ok
  if wanted and found ~= "none" and found ~= wanted then
    redis.call("DEL", KEYS[i])
  end
end
local holder = redis.call("GET", KEYS[1])
if holder then
  local left = redis.call("PTTL", KEYS[1])
  if left < 0 or left > tonumber(ARGV[2]) then
    redis.call("PEXPIRE", KEYS[1], ARGV[2])
  end
  return { 0, holder }
end
redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
local failing = redis.pcall("HGETALL", KEYS[8])
if failing.err then
  redis.call("DEL", KEYS[8])
  failing = {}
end
local dirty = redis.call("DEL", KEYS[3])
local late = redis.call("SMEMBERS", KEYS[7])
redis.call("DEL", KEYS[7])
return {
  1,
  dirty,
  redis.call("GET", KEYS[2]) or "",
  redis.call("GET", KEYS[4]) or "",
  redis.call("HGETALL", KEYS[5]),
  redis.call("HGETALL", KEYS[6]),
  late,
  failing,
}
