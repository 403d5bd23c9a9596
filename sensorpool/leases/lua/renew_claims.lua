-- renew_claims(claim, ...; owner, ttl_ms, since, ...) -> {place, ...}
--
-- Let a process's claims live on. A claim that has ended (Redis was away for longer than it lives) is made again, as of
-- its time, and its place is returned; but not where another process has the claim by now.
local again = {}
for i, name in ipairs(KEYS) do
  local found = redis.pcall("GET", name)
  if not found then
    redis.call("SET", name, ARGV[i + 2] .. " " .. ARGV[1], "PX", ARGV[2])
    again[#again + 1] = i
  elseif type(found) == "string" and string.match(found, "^%d+ (%x+)$") == ARGV[1] then
    redis.call("PEXPIRE", name, ARGV[2])
  end
end
return again
