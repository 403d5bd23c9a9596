-- release(lease[, note]; token) -> 1 | 0
--
-- Give the lease back if it is still ours, and leave the state as it is: the job did not end well. A holder that lives
-- takes its note away with it; that of a dead one stays for the next holder to find.
if redis.pcall("GET", KEYS[1]) ~= ARGV[1] then
  return 0
end
if KEYS[2] then
  redis.call("DEL", KEYS[2])
end
return redis.call("DEL", KEYS[1])
