-- probe(outages, probes; backend, token, kept_ms) -> {1, 0} (ask it) | {0, left_ms} (not yet) | {-1, 0} (no outage)
--
-- Take the turn to ask a backend that is away: one poke at a time may, once its pause has passed. A turn that is not
-- ended goes to another poke after `kept_ms`. (For the entries see begin_outage.)
for _, key in ipairs(KEYS) do
  local found = redis.call("TYPE", key).ok
  if found ~= "hash" and found ~= "none" then
    redis.call("DEL", key)
  end
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = tonumber(ARGV[3])
local since, until_then, _, kind = string.match(redis.call("HGET", KEYS[1], ARGV[1]) or "", "^(%d+) (%d+) (%d+) (%a+) ")
since, until_then = tonumber(since), tonumber(until_then)
-- one from after now was written before the clock was put back
if (kind ~= "away" and kind ~= "throttled") or since > now then
  return { -1, 0 }
end
if now < until_then then
  return { 0, until_then - now }
end
local ends = tonumber(string.match(redis.call("HGET", KEYS[2], ARGV[1]) or "", "^(%d+) "))
if ends and now < ends and ends <= now + kept then
  return { 0, ends - now }
end
redis.call("HSET", KEYS[2], ARGV[1], string.format("%d ", now + kept) .. ARGV[2])
redis.call("PEXPIRE", KEYS[2], 86400000)
return { 1, 0 }
