-- keep(pokes; record, expires, now) -> 1
--
-- Keep the record of a job until it expires, and drop those that have. (As a pipeline it costs the client three times.)
local found = redis.call("TYPE", KEYS[1]).ok
if found ~= "zset" and found ~= "none" then
  redis.call("DEL", KEYS[1])
end
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", ARGV[3])
redis.call("ZADD", KEYS[1], ARGV[2], ARGV[1])
redis.call("PEXPIREAT", KEYS[1], ARGV[2] + 60000)
return 1
