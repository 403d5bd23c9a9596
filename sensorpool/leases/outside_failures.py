"""Since when pokes outside of jobs end in infrastructure failures, by group: a hash of each range.

Any process may make the next poke of a group. A job moves what it judges itself into the state of its range.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sensorpool.leases.answers import by_id
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Failing, ShardRange

_KEPT = 30 * 86_400  # seconds: longer than nearly all intervals
_LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999


class OutsideFailures:
    """The failing groups of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def keep(
        self, shard_range: ShardRange, failing: Mapping[int, Failing], ended: Collection[int] = frozenset()
    ) -> None:
        """Keep the failures of groups, and forget those that have `ended`."""
        if not failing and not ended:
            return
        name, pipeline = self._store.key(shard_range, "failing"), self._store.pipeline()
        if ended:
            pipeline.hdel(name, *map(str, ended))
        if failing:
            pipeline.hset(
                name, mapping={str(group_id): f"{since} {last}" for group_id, (since, last) in failing.items()}
            )
            pipeline.expire(name, _KEPT)
        self._store.call(pipeline.execute)

    def of(self, shard_range: ShardRange, group_ids: Collection[int]) -> dict[int, Failing]:
        """Return the failures of these groups of a range; a group without one is not in it."""
        found = self._store.read_hash(self._store.key(shard_range, "failing")) or {}  # few; the ACL allows no HMGET
        wanted = {str(group_id) for group_id in group_ids}
        return read_failing((group_id, text) for group_id, text in found.items() if group_id in wanted)


def read_failing(fields: Iterable[tuple[str, Any]]) -> dict[int, Failing]:
    """Read what `OutsideFailures.keep` wrote of each group; what cannot be read is skipped."""
    read = ((group_id, _read(text)) for group_id, text in by_id(fields))
    return {group_id: each for group_id, each in read if each is not None}


def _read(text: object) -> Failing | None:
    words = text.split() if isinstance(text, str) and text.isascii() and len(text) < 40 else ()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None
    since, last = map(int, words)
    return Failing(since, last) if since <= last <= _LATEST else None
