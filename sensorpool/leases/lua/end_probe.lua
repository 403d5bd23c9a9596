-- end_probe(outages, probes; backend, answered, factor, longest_ms, healed_ms) -> {1, lasted_ms} | {0, left_ms}
--
-- Say what a poke of a backend saw that is away. `answered` 1: the outage is over, and this is known for `healed_ms`.
-- 0: the pause until the next poke doubles, up to `longest_ms`, times `factor`. {0, 0}: no outage is known.
-- (For the entries see begin_outage.)
for _, key in ipairs(KEYS) do
  local found = redis.call("TYPE", key).ok
  if found ~= "hash" and found ~= "none" then
    redis.call("DEL", key)
  end
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call("HGET", KEYS[1], ARGV[1]) or ""
local since, until_then, wait, kind, cause = string.match(found, "^(%d+) (%d+) (%d+) (%a+) (.*)$")
redis.call("HDEL", KEYS[2], ARGV[1])
if kind ~= "away" and kind ~= "throttled" then
  return { 0, 0 }
end
since, until_then, wait = tonumber(since), tonumber(until_then), tonumber(wait)
if ARGV[2] == "1" then
  redis.call("HSET", KEYS[1], ARGV[1], string.format("%d %d %d healed ", since, now + ARGV[5], wait) .. cause)
  return { 1, math.max(0, now - since) }
end
wait = math.min(2 * wait, tonumber(ARGV[4]))
local left = math.max(math.floor(wait * tonumber(ARGV[3])), until_then - now)
redis.call("HSET", KEYS[1], ARGV[1], string.format("%d %d %d ", since, now + left, wait) .. kind .. " " .. cause)
return { 0, left }
