"""The groups whose result cannot be written, each with since when and why: a hash of each range (`model.unsettled`)."""

from collections.abc import Iterable, Mapping

from sensorpool.leases.answers import by_id
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model import unsettled
from sensorpool.model.values import ShardRange, Unsettled

_KEPT = 30 * 86_400  # seconds: longer than nearly all intervals, or the window would never end


class UnsettledGroups:
    """The unsettled groups of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def keep(self, shard_range: ShardRange, kept: Mapping[int, Unsettled], cleared: Iterable[int] = ()) -> None:
        """Keep since when and why groups are unsettled, and forget the `cleared` ones."""
        name, settled = self._store.key(shard_range, "unsettled"), [str(group_id) for group_id in cleared]
        pipeline = self._store.pipeline()
        if settled:
            pipeline.hdel(name, *settled)
        if kept:
            pipeline.hset(name, mapping={str(group_id): unsettled.spell(each) for group_id, each in kept.items()})
            pipeline.expire(name, _KEPT)
        if settled or kept:
            self._store.call(pipeline.execute)

    def of(self, ranges: Iterable[ShardRange]) -> dict[int, Unsettled]:
        """Return the unsettled groups of these ranges."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            pipeline.hgetall(self._store.key(shard_range, "unsettled"))
        found: dict[int, Unsettled] = {}
        for fields in self._store.call(pipeline.execute):
            found |= read_unsettled(fields.items())
        return found


def read_unsettled(fields: Iterable[tuple[str, str]]) -> dict[int, Unsettled]:
    """Read what `UnsettledGroups.keep` wrote of each group; a text that cannot be read is skipped."""
    read = ((group_id, unsettled.read(value)) for group_id, value in by_id(fields))
    return {group_id: each for group_id, each in read if each is not None}
