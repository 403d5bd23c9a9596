-- marks(quiet, light, lease, dirty, state) -> {span, took}   (milliseconds; -1: no such mark)
--
-- Return the marks of a range. While the quiet mark stands, no job looks at the range: nothing of it is due. So `last`,
-- by which all processes tell a range that lives from a dead one, moves on here, by the clock of the mark's expiry.
-- A holder, and a raised dirty flag, take the mark away; a holder of an older version leaves it standing, but
-- its state names no `loaded`.
local function read(key)
  local found = redis.pcall("GET", key)
  return type(found) == "string" and #found < 12 and tonumber(string.match(found, "^%d+$")) or nil
end
local took, span = read(KEYS[2]) or -1, read(KEYS[1])
if not span or redis.call("EXISTS", KEYS[3], KEYS[4]) > 0 then
  return { -1, took }
end
local left = redis.call("PTTL", KEYS[1])
local state = redis.pcall("GET", KEYS[5])
if left < 0 or left > span or type(state) ~= "string" then
  return { -1, took }
end
local last = tonumber(string.match(state, '^{"last":(%d+),'))
local loaded = tonumber(string.match(state, '"loaded":(%d+)[,}]'))
if not last or not loaded then
  return { -1, took }
end
local now = loaded + span - left
if now > last then
  local text = string.gsub(state, '^{"last":%d+,', string.format('{"last":%.0f,', now))
  redis.call("SET", KEYS[5], text, "PX", 86400000)
end
return { span, took }
