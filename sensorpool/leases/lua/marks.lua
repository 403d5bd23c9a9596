-- marks(quiet, light, state) -> {span, took}   (milliseconds; -1: no such mark)
--
-- Return the marks of a range. While the quiet mark stands, no job looks at the range: nothing of it is due. So its
-- `quiet_until`, by which all processes tell a range that lives from a dead one, moves on here, by the clock of the
-- mark's expiry.
local function read(key)
  local found = redis.pcall("GET", key)
  return type(found) == "string" and #found < 12 and tonumber(string.match(found, "^%d+$")) or nil
end
local took, span = read(KEYS[2]) or -1, read(KEYS[1])
if not span then
  return { -1, took }
end
local left = redis.call("PTTL", KEYS[1])
local state = redis.pcall("GET", KEYS[3])
if left < 0 or left > span or type(state) ~= "string" then
  return { -1, took }
end
local last, seen = string.match(state, '^{"last":(%d+),"quiet_until":(%d+),')
if not last then
  return { -1, took }
end
local now = tonumber(last) + span - left
if now > tonumber(seen) then
  local text = string.gsub(state, '"quiet_until":%d+', string.format('"quiet_until":%.0f', now), 1)
  redis.call("SET", KEYS[3], text, "PX", 86400000)
end
return { span, took }
