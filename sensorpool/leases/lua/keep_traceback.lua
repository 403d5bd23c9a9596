-- keep_traceback(tracebacks; most, kept_for, signature, entry)
--
-- Keep the traceback of a signature. An entry begins with the time when it was written, and the oldest one goes when
-- there are too many.
if redis.call("TYPE", KEYS[1]).ok ~= "hash" then
  redis.call("DEL", KEYS[1])
end
redis.call("HSET", KEYS[1], ARGV[3], ARGV[4])
if redis.call("HLEN", KEYS[1]) > tonumber(ARGV[1]) then
  local entries, oldest, since = redis.call("HGETALL", KEYS[1]), nil, math.huge
  for i = 1, #entries, 2 do
    local at = tonumber(string.match(entries[i + 1], "^%[(%d+),") or 0)
    if at < since then
      oldest, since = entries[i], at
    end
  end
  redis.call("HDEL", KEYS[1], oldest)
end
redis.call("PEXPIRE", KEYS[1], ARGV[2])
