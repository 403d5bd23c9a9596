-- claims(suspects; prefix) -> "suspect since suspect since ..."
--
-- Return since when those suspects of a range have been claimed that are: `prefix` and its id is the key of a claim, in
-- the slot of the range. (In one text: the client reads ten thousand answers twenty times as long. No ACL of ours has
-- HKEYS or MGET.)
local found = redis.pcall("HGETALL", KEYS[1])
local claimed = {}
for i = 1, found.err and 0 or #found, 2 do
  local since = string.match(found[i], "^%d+$") and redis.pcall("GET", ARGV[1] .. found[i])
  if type(since) == "string" and string.match(since, "^%d+$") then
    claimed[#claimed + 1] = found[i] .. " " .. since
  end
end
return table.concat(claimed, " ")
