-- enroll(workers; name, terms, more, fresh_ms, must_agree) -> {1 | 0, {name, entry, ...}}
--
-- Enter a worker in the roster, and return the other live workers. Where `must_agree` is 1 and a live worker has other
-- terms, nothing is written: the first worker wins. An entry that is older than `fresh_ms`, by the clock of Redis,
-- belongs to a dead worker and is deleted.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fresh = tonumber(ARGV[4])
local rows, others, agreed = redis.call("HGETALL", KEYS[1]), {}, true
for i = 1, #rows, 2 do
  local at, terms = string.match(rows[i + 1], "^(%d+) (%S+) ")
  if not at or math.abs(now - at) > fresh then
    redis.call("HDEL", KEYS[1], rows[i])
  elseif rows[i] ~= ARGV[1] then
    others[#others + 1] = rows[i]
    others[#others + 1] = rows[i + 1]
    agreed = agreed and terms == ARGV[2]
  end
end
if ARGV[5] == "1" and not agreed then
  return { 0, others }
end
redis.call("HSET", KEYS[1], ARGV[1], string.format("%d", now) .. " " .. ARGV[2] .. " " .. ARGV[3])
redis.call("PEXPIRE", KEYS[1], 4 * fresh)
return { 1, others }
