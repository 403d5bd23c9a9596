-- release(lease[, note]; token) -> 1 | 0
--
-- Give the lease back if the caller still has it, and leave the state as it is: the job did not end well. A living
-- holder deletes its note; the note of a dead holder stays for the next holder.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then
  return 0
end
if KEYS[2] then
  redis.call("DEL", KEYS[2])
end
return redis.call("DEL", KEYS[1])
