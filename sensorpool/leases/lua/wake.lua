-- wake(late, quiet, woken, dirty, nudged; gap_ms, dirty_kept_ms, late_kept_ms, most, id, ...) -> {1 | 0, dropped}
--
-- Have groups of a range poked at once (`dirty_flags.at_once` makes the ids). 1: the caller sends a job; 0: one was sent
-- less than `gap_ms` ago, and the job that took its groups up sends another when the gap has passed. Beyond `most`
-- groups a wake-up is dropped: its groups are poked in their turn.
if redis.call("TYPE", KEYS[1]).ok ~= "set" then
  redis.call("DEL", KEYS[1])
end
local room = tonumber(ARGV[4]) - redis.call("SCARD", KEYS[1])
local dropped = 0
for i = 5, #ARGV do
  if room > 0 then
    room = room - redis.call("SADD", KEYS[1], ARGV[i])
  else
    dropped = dropped + 1
  end
end
redis.call("PEXPIRE", KEYS[1], ARGV[3])
redis.call("DEL", KEYS[2])
redis.call("SET", KEYS[3], "1", "PX", ARGV[3])
if not redis.call("SET", KEYS[5], "1", "NX", "PX", ARGV[1]) then
  return { 0, dropped }
end
redis.call("SET", KEYS[4], "1", "PX", ARGV[2])
return { 1, dropped }
