-- extend(lease; token, ttl_ms) -> 1 | 0
--
-- Renew the lease if the caller still has it.
if redis.call("GET", KEYS[1]) == ARGV[1] then
  redis.call("PEXPIRE", KEYS[1], ARGV[2])
  return 1
end
return 0
