-- keep(pokes, pokes_size; now, most_bytes, most_records, record, expires, ...) -> how many are kept
--
-- Keep the records of a job until they expire, drop expired records, and drop more where there are too many. Beyond
-- `most_records` the oldest long-lived records go first, because recent pokes are asked for more often. Beyond
-- `most_bytes` the records that expire soonest go first. (A pipeline would cost the client three times as much.)
--
-- `pokes_size` holds the sum of what is kept: "records bytes writes". The sum is made anew now and then, because an
-- older version does not add to it, and when it is lost.
local LONG_LIVED, LONGEST, COUNT_AFRESH = 1800000, 172800000, 200

for i, wanted in ipairs({ "zset", "string" }) do
  local found = redis.call("TYPE", KEYS[i]).ok
  if found ~= wanted and found ~= "none" then
    redis.call("DEL", KEYS[i])
  end
end

local now, most_bytes, most_records = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local records, bytes, writes = string.match(redis.call("GET", KEYS[2]) or "", "^(%d+) (%d+) (%d+)$")
records, bytes, writes = tonumber(records), tonumber(bytes), tonumber(writes)
if not records or records > 1e9 or bytes > 1e12 or writes >= COUNT_AFRESH then
  records, bytes, writes = 0, 0, 0
  for _, record in ipairs(redis.call("ZRANGE", KEYS[1], 0, -1)) do
    records, bytes = records + 1, bytes + #record
  end
end

local function drop(found)
  for _, record in ipairs(found) do
    redis.call("ZREM", KEYS[1], record)
    records, bytes = math.max(0, records - 1), math.max(0, bytes - #record)
  end
  return #found > 0
end

drop(redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", now))
local more_bytes, more_records = 0, (#ARGV - 3) / 2
for i = 4, #ARGV, 2 do
  more_bytes = more_bytes + #ARGV[i]
end
while bytes + more_bytes > most_bytes and drop(redis.call("ZRANGE", KEYS[1], 0, 0)) do
end
while records + more_records > most_records do
  local found = redis.call("ZRANGEBYSCORE", KEYS[1], now + LONG_LIVED, "+inf", "LIMIT", 0, 1)
  if not drop(found) and not drop(redis.call("ZRANGE", KEYS[1], 0, 0)) then
    break
  end
end
for i = 4, #ARGV, 2 do
  if bytes + #ARGV[i] <= most_bytes and redis.call("ZADD", KEYS[1], ARGV[i + 1], ARGV[i]) == 1 then
    records, bytes = records + 1, bytes + #ARGV[i]
  end
end
local last = redis.call("ZRANGE", KEYS[1], -1, -1, "WITHSCORES")
local left = last[2] and math.floor(tonumber(last[2]) - now) or 0
local span = math.min(math.max(left, 0), LONGEST) + 60000
redis.call("PEXPIRE", KEYS[1], span)
redis.call("SET", KEYS[2], string.format("%d %d %d", records, bytes, writes + 1), "PX", span)
return records
