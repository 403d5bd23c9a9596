-- begin_outage(outages; backend, kind, quiet_ms, wait_ms, stale_ms, most, cause) -> {1 | 2 | 0 | -1, left_ms}
--
-- Note that a backend is away, or wants to be left alone for `quiet_ms`. Until `left_ms` have passed, no poke asks it;
-- then one at a time does, to see whether it answers. 1: the outage begins; 2: it goes on, because the backend has been
-- away a short while ago; 0: it is known, and a longer quiet span counts; -1: there are too many outages.
--
-- An entry is "since until wait kind cause", times by the clock of Redis. One whose time passed `stale_ms` ago, and which
-- no poke has asked since, tells of a backend that no group waits for.
if redis.call("TYPE", KEYS[1]).ok ~= "hash" then
  redis.call("DEL", KEYS[1])
end

-- Drop the entries that tell of nothing any more; return whether there were some.
local function drop_old(now, stale)
  local fields, dropped = redis.call("HGETALL", KEYS[1]), 0
  for i = 1, #fields, 2 do
    local ends, kind = string.match(fields[i + 1], "^%d+ (%d+) %d+ (%a+) ")
    ends = tonumber(ends)
    if not ends or ends + (kind == "healed" and 0 or stale) <= now then
      dropped = dropped + redis.call("HDEL", KEYS[1], fields[i])
    end
  end
  return dropped > 0
end

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local quiet, wait, stale = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local found = redis.call("HGET", KEYS[1], ARGV[1]) or ""
local since, until_then, kept_wait, kind = string.match(found, "^(%d+) (%d+) (%d+) (%a+) ")
since, until_then = tonumber(since), tonumber(until_then)
local is_ours = kind == "away" or kind == "throttled" or kind == "healed"
local is_fresh = is_ours and since <= now and now < until_then + stale and until_then < now + 100 * stale
local answer = 1
if is_fresh and kind ~= "healed" then
  if quiet > 0 and now + quiet > until_then then
    local rest = string.match(found, "^%d+ %d+( .*)$")
    redis.call("HSET", KEYS[1], ARGV[1], string.format("%d %d", since, now + quiet) .. rest)
    until_then = now + quiet
  end
  return { 0, until_then - now }
elseif is_fresh and now < until_then then
  wait, answer = math.max(wait, tonumber(kept_wait)), 2
  if ARGV[2] == "throttled" then
    since = now -- it has answered since, and only wants to be asked less: that may go on for ever
  end
elseif not since and redis.call("HLEN", KEYS[1]) >= tonumber(ARGV[6]) and not drop_old(now, stale) then
  return { -1, wait }
else
  since = now
end
local span = quiet > 0 and quiet or wait
local head = string.format("%d %d %d ", since, now + span, wait)
redis.call("HSET", KEYS[1], ARGV[1], head .. ARGV[2] .. " " .. ARGV[7])
redis.call("PEXPIRE", KEYS[1], 86400000)
return { answer, span }
