-- keep(pokes, pokes_size, history, history_size; now, most_bytes, most_records, most_history, factor, record, expires,
--      ...) -> how many are kept
--
-- Keep the records of a job until they expire. An expired record is kept as history, for `factor` times as long as it
-- has lived. Drop more where there are too many: beyond `most_records` the oldest long-lived records go first, because
-- recent pokes are asked for more often; beyond `most_bytes` the records that expire soonest go first, and so they do in
-- the history, beyond `most_history` bytes. (A pipeline would cost the client three times as much.)
--
-- The sizes hold the sum of what is kept: "records bytes writes". A sum is made anew when it is lost, and now and then,
-- because Redis may evict the records and leave their sum.
local LONG_LIVED, LONGEST, COUNT_AFRESH = 1800000, 172800000, 200

for i, wanted in ipairs({ "zset", "string", "zset", "string" }) do
  local found = redis.call("TYPE", KEYS[i]).ok
  if found ~= wanted and found ~= "none" then
    redis.call("DEL", KEYS[i])
  end
end

local now, most_bytes, most_records = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local most_history, factor, FIRST = tonumber(ARGV[4]), tonumber(ARGV[5]), 6

-- A set of records, with the sum of what it holds.
local function open(key, size_key)
  local self = { key = key }
  local records, bytes, writes = string.match(redis.call("GET", size_key) or "", "^(%d+) (%d+) (%d+)$")
  records, bytes, writes = tonumber(records), tonumber(bytes), tonumber(writes)
  if not records or records > 1e9 or bytes > 1e12 or writes >= COUNT_AFRESH then
    records, bytes, writes = 0, 0, 0
    for _, record in ipairs(redis.call("ZRANGE", key, 0, -1)) do
      records, bytes = records + 1, bytes + #record
    end
  end
  self.records, self.bytes = records, bytes

  function self.drop(found)
    for _, record in ipairs(found) do
      redis.call("ZREM", key, record)
      self.records, self.bytes = math.max(0, self.records - 1), math.max(0, self.bytes - #record)
    end
    return #found > 0
  end

  function self.add(record, expires, most)
    if self.bytes + #record <= most and redis.call("ZADD", key, expires, record) == 1 then
      self.records, self.bytes = self.records + 1, self.bytes + #record
    end
  end

  function self.make_room(more, most)
    while self.bytes + more > most and self.drop(redis.call("ZRANGE", key, 0, 0)) do
    end
  end

  function self.close()
    local last = redis.call("ZRANGE", key, -1, -1, "WITHSCORES")
    local left = last[2] and math.floor(tonumber(last[2]) - now) or 0
    local span = math.min(math.max(left, 0), factor * LONGEST) + 60000
    redis.call("PEXPIRE", key, span)
    redis.call("SET", size_key, string.format("%d %d %d", self.records, self.bytes, writes + 1), "PX", span)
  end

  return self
end

local pokes = open(KEYS[1], KEYS[2])
local expired = redis.call("ZRANGEBYSCORE", pokes.key, "-inf", now, "WITHSCORES")
if #expired > 0 then
  local history = open(KEYS[3], KEYS[4])
  history.drop(redis.call("ZRANGEBYSCORE", history.key, "-inf", now))
  for i = 1, #expired, 2 do
    local record, expires = expired[i], tonumber(expired[i + 1])
    pokes.drop({ record })
    local lived = expires - (tonumber(string.match(record, "^%[(%d+),")) or expires)
    local until_then = expires + factor * math.min(math.max(lived, 0), LONGEST)
    if until_then > now then
      history.make_room(#record, most_history)
      history.add(record, until_then, most_history)
    end
  end
  history.close()
end

local more_bytes, more_records = 0, (#ARGV - FIRST + 1) / 2
for i = FIRST, #ARGV, 2 do
  more_bytes = more_bytes + #ARGV[i]
end
pokes.make_room(more_bytes, most_bytes)
while pokes.records + more_records > most_records do
  local found = redis.call("ZRANGEBYSCORE", pokes.key, now + LONG_LIVED, "+inf", "LIMIT", 0, 1)
  if not pokes.drop(found) and not pokes.drop(redis.call("ZRANGE", pokes.key, 0, 0)) then
    break
  end
end
for i = FIRST, #ARGV, 2 do
  pokes.add(ARGV[i], ARGV[i + 1], most_bytes)
end
pokes.close()
return pokes.records
