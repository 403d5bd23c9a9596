-- wake(woken, dirty, nudged; gap_ms, dirty_kept_ms, woken_kept_ms, most, id, ...) -> {1 | 0, dropped, gap_left_ms}
--
-- Have groups of a range poked at once. 1: the caller sends a job; 0: one was sent less than `gap_ms` ago, and who ran
-- that job asks again when the gap has passed: without ids, for those that were woken meanwhile, and again until no gap
-- is left; then the next caller that wakes a group sends a job. Beyond `most` groups a wake-up is dropped: its groups are
-- poked in their turn.
local left = math.max(0, redis.call("PTTL", KEYS[3]))
local waiting = redis.call("SCARD", KEYS[1])
if #ARGV < 5 and (left > 0 or waiting == 0) then
  return { 0, 0, left }
end
local room, dropped = tonumber(ARGV[4]) - waiting, 0
for i = 5, #ARGV do
  if redis.call("SADD", KEYS[1], ARGV[i]) == 1 then
    room = room - 1
    if room < 0 then
      redis.call("SREM", KEYS[1], ARGV[i])
      dropped = dropped + 1
    end
  end
end
redis.call("PEXPIRE", KEYS[1], ARGV[3])
if left > 0 then
  return { 0, dropped, left }
end
redis.call("SET", KEYS[3], "1", "PX", ARGV[1])
redis.call("SET", KEYS[2], "1", "PX", ARGV[2])
return { 1, dropped, tonumber(ARGV[1]) }
