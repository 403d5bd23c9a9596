-- drop_claims(claim, ...; owner) -> how many
--
-- Drop a process's claims. A claim that ended meanwhile may be another process's, and stays.
local dropped = 0
for _, name in ipairs(KEYS) do
  local found = redis.pcall("GET", name)
  if type(found) == "string" and string.match(found, "^%d+ (%x+)$") == ARGV[1] then
    dropped = dropped + redis.call("DEL", name)
  end
end
return dropped
