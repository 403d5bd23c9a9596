-- claims(suspects; prefix) -> "suspect since suspect since ..."
--
-- Return since when each claimed suspect of a range has been claimed. The key of a claim is `prefix` and the group's
-- id; it is one of the range's keys. Its value is the time and the owner. (The answer is one text, because the client
-- takes twenty times as long to read ten thousand answers. HKEYS and MGET are not in our ACL.)
local found = redis.pcall("HGETALL", KEYS[1])
local claimed = {}
for i = 1, found.err and 0 or #found, 2 do
  local since = string.match(found[i], "^%d+$") and redis.pcall("GET", ARGV[1] .. found[i])
  since = type(since) == "string" and string.match(since, "^(%d+) %x+$")
  if since then
    claimed[#claimed + 1] = found[i] .. " " .. since
  end
end
return table.concat(claimed, " ")
