"""The queues of listeners: bounded by number and weight, because Redis expires no queue of a listener that is gone."""

from typing import Any

MESSAGES = 10_000  # unread messages after which a queue counts as abandoned
BYTES = 64 * 2**20  # unread bytes after which it does
_SAMPLE = 64  # messages of a queue that are weighed

# Weighs a list by a sample of its elements, spread over it; no element leaves Redis.
_WEIGH = """
local length = redis.call('LLEN', KEYS[1])
local step = math.max(1, math.floor(length / tonumber(ARGV[1])))
local weight, seen = 0, 0
for place = 0, length - 1, step do
    local found = redis.pcall('LINDEX', KEYS[1], place)
    if type(found) == 'string' then
        weight, seen = weight + #found, seen + 1
    end
end
if seen == 0 then
    return 0
end
return math.floor(weight / seen * length)
"""


def drop(channel: Any, exchange: str) -> int:
    """Delete the queues of an exchange that hold more than a listener may leave unread; return how many."""
    if not hasattr(channel, "client") or not hasattr(channel, "get_table"):
        return 0  # a broker that expires queues by itself
    try:
        bindings = channel.get_table(exchange)
    except Exception:
        return 0  # no queue is bound
    queues = {queue for _, _, queue in bindings}
    abandoned = {queue for queue in queues if channel._size(queue) > MESSAGES or weigh(channel, queue) > BYTES}
    for routing_key, pattern, queue in bindings:
        if queue in abandoned:  # not by `queue_delete`, which knows only the bindings of this process
            channel._delete(queue, exchange, routing_key, pattern)
    return len(abandoned)


def weigh(channel: Any, queue: str) -> int:
    """Return about how many bytes a queue in Redis holds; 0 where the ACL forbids to read its elements."""
    with channel.conn_or_acquire() as client:
        return int(client.eval(_WEIGH, 1, f"{channel.global_keyprefix or ''}{queue}", _SAMPLE))
