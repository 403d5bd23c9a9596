-- finish(lease, state, dirty, note, late, quiet, light, woken, failing;
--        token, state_json, again, ttl_ms, quiet_span, quiet_left, took, light_kept, {taken, text, ...})
--   -> {1} (released) | {2, {late, ...}} (dirty: go on) | {0} (not ours)
--
-- Leave the state and the marks for the next holder and for beat, and give the lease back. Where `again` is 1 and the
-- range became dirty during the job, keep the lease and lower the flag: the caller loads once more, and sees what the
-- range was woken for. A state expires after a day, because forged ranges must not fill Redis. A range that is dirty,
-- or was woken during the job, is not quiet. (For the marks see `range_marks`; a span of 0 means that there is no such
-- mark.) What the state has taken over from pokes outside of jobs is deleted with it, unless they have told more since.
if redis.pcall("GET", KEYS[1]) ~= ARGV[1] then
  return { 0 }
end
redis.call("SET", KEYS[2], ARGV[2], "PX", 86400000)
for i = 9, #ARGV, 2 do
  if redis.pcall("HGET", KEYS[9], ARGV[i]) == ARGV[i + 1] then
    redis.call("HDEL", KEYS[9], ARGV[i])
  end
end
redis.call("DEL", KEYS[4])
if ARGV[3] == "1" and redis.call("DEL", KEYS[3]) == 1 then
  redis.call("PEXPIRE", KEYS[1], ARGV[4])
  redis.call("DEL", KEYS[8])
  local late = {}
  if redis.call("TYPE", KEYS[5]).ok == "set" then
    late = redis.call("SMEMBERS", KEYS[5])
    redis.call("DEL", KEYS[5])
  end
  return { 2, late }
end
if ARGV[6] ~= "0" and redis.call("EXISTS", KEYS[3], KEYS[8]) == 0 then
  redis.call("SET", KEYS[6], ARGV[5], "PX", ARGV[6])
end
if ARGV[8] ~= "0" then
  redis.call("SET", KEYS[7], ARGV[7], "PX", ARGV[8])
end
redis.call("DEL", KEYS[1])
return { 1 }
