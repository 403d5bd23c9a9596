"""Since when pokes outside of jobs end in infrastructure failures, by group: a hash of each range.

Any process may make the next poke of a group. A job moves what it knows of groups that it pokes itself into the state
of its range, and with that state it deletes them here (`Leases.finish`). A poke that ends a failure leaves its time,
for a job that died may have left the failure in the state.
"""

from collections.abc import Collection, Iterable
from typing import Any

from sensorpool.leases.answers import by_id
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Failing, Milliseconds, ShardRange, Told

_KEPT = 30 * 86_400  # seconds: longer than nearly all intervals
_LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999


class OutsideFailures:
    """The failing groups of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def keep(
        self,
        shard_range: ShardRange,
        failing: dict[int, Failing],
        answered: dict[int, Milliseconds] | None = None,
    ) -> None:
        """Keep the failures of groups, and of others when a poke began that ended their failure."""
        texts = {str(group_id): spell(each) for group_id, each in (failing | (answered or {})).items()}
        if not texts:
            return
        name, pipeline = self._store.key(shard_range, "failing"), self._store.pipeline()
        pipeline.hset(name, mapping=texts)
        pipeline.expire(name, _KEPT)
        self._store.call(pipeline.execute)

    def of(self, shard_range: ShardRange, group_ids: Collection[int]) -> Told:
        """Return what is told of these groups of a range."""
        found = self._store.read_hash(self._store.key(shard_range, "failing")) or {}  # few; the ACL allows no HMGET
        wanted = {str(group_id) for group_id in group_ids}
        return read_told((group_id, text) for group_id, text in found.items() if group_id in wanted)


def spell(told: Failing | Milliseconds) -> str:
    """Return what is told of a group as text: since when it fails and when that was seen last, or when it answered."""
    return f"{told.since} {told.last}" if isinstance(told, Failing) else str(told)


def read_told(fields: Iterable[tuple[str, Any]]) -> Told:
    """Read what `OutsideFailures.keep` wrote of each group; what cannot be read is skipped."""
    failing: dict[int, Failing] = {}
    answered: dict[int, Milliseconds] = {}
    for group_id, text in by_id(fields):
        match _read(text):
            case [since, last] if since <= last:
                failing[group_id] = Failing(since, last)
            case [at]:
                answered[group_id] = at
    return Told(failing, answered)


def _read(text: object) -> list[Milliseconds]:
    words = text.split() if isinstance(text, str) and text.isascii() and len(text) < 40 else ()
    times = [int(word) for word in words if word.isdecimal()]
    return times if len(times) == len(words) and max(times, default=0) <= _LATEST else []
