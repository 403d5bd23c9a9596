-- finish(lease, state, dirty, note, woken, background; token, state_json, again, ttl_ms, dead_process, ...)
--   -> {1} (released) | {2, {id, ...}} (dirty: go on) | {0} (not ours)
--
-- Leave the state for the next holder, and give the lease back. Where `again` is 1 and the range became dirty during
-- the job, keep the lease and lower the flag: the caller loads once more, and sees what the range was woken for. A
-- state expires after a day, because forged ranges must not fill Redis.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then
  return { 0 }
end
redis.call("SET", KEYS[2], ARGV[2], "PX", 86400000)
redis.call("DEL", KEYS[4])
for i = 5, #ARGV do
  redis.call("HDEL", KEYS[6], ARGV[i])
end
if ARGV[3] == "1" and redis.call("DEL", KEYS[3]) == 1 then
  redis.call("PEXPIRE", KEYS[1], ARGV[4])
  local woken = redis.call("SMEMBERS", KEYS[5])
  redis.call("DEL", KEYS[5])
  return { 2, woken }
end
redis.call("DEL", KEYS[1])
return { 1 }
