"""Wake-ups: groups that are poked at once, because their condition may hold now, as its source says.

They are merged, and bounded. A lost wake-up changes nothing but time, and so does a forged one: it costs a group a
poke, at most one in `GAP` and one at each tick.
"""

from collections.abc import Mapping, Sequence

from sensorpool.leases.dirty_flags import at_once
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import ShardRange

GAP = 1.0  # seconds between two jobs of a range for wake-ups
MOST = 10_000  # groups of a range that wait to be poked for a wake-up
_KEPT = 3_600_000  # milliseconds, as of `dirty_flags`


class WakeUps:
    """The wake-ups of a pool's ranges.

    :param kept: milliseconds after which a dirty flag goes down by itself.
    """

    def __init__(self, store: RedisStore, kept: int) -> None:
        self._store = store
        self._kept = kept
        self._wake = store.script("wake")

    def wake(self, groups: Mapping[ShardRange, Sequence[int]]) -> tuple[list[ShardRange], int]:
        """Wake groups; return the ranges for which the caller sends a job, and how many wake-ups were dropped.

        :param groups: their ids, by range.
        :raises Unreachable: when Redis does not answer.
        """
        answers = self._ask(groups)
        sent = [shard_range for shard_range, (is_first, *_) in zip(groups, answers, strict=True) if is_first]
        return sent, sum(dropped for _, dropped, _ in answers)

    def look(self, shard_range: ShardRange) -> tuple[bool, float]:
        """Return whether groups were woken for which no job was sent, so the caller sends one; and when to ask again.

        :returns: seconds; 0: who wakes a group then sends a job.
        :raises Unreachable: when Redis does not answer.
        """
        [(is_first, _, left)] = self._ask({shard_range: ()})
        return bool(is_first), left / 1000

    def _ask(self, groups: Mapping[ShardRange, Sequence[int]]) -> list[list[int]]:
        pipeline = self._store.pipeline()
        for shard_range, group_ids in groups.items():
            names = ("late", "dirty", "nudged")
            keys = [self._store.key(shard_range, name) for name in names]
            ids = [str(at_once(group_id)) for group_id in group_ids]
            self._wake(keys=keys, args=[round(GAP * 1000), self._kept, _KEPT, MOST, *ids], client=pipeline)
        return [[int(each) for each in answer] for answer in self._store.call(pipeline.execute)]
