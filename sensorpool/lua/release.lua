-- release(lease; token) -> 1 | 0
--
-- Give the lease back if it is still ours, leaving everything else as it is: the job did not end well.
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0
