-- note(background; owner, span_ms, groups_json) -> until_ms
--
-- Note what a process pokes of a range outside of jobs, for so long; no text: nothing. By the clock of Redis, because
-- processes on other hosts read it.
local time = redis.call("TIME")
local until_then = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])
if ARGV[3] == "" then
  redis.call("HDEL", KEYS[1], ARGV[1])
else
  redis.call("HSET", KEYS[1], ARGV[1], string.format("%.0f ", until_then) .. ARGV[3])
  redis.call("PEXPIRE", KEYS[1], 86400000)
end
return until_then
