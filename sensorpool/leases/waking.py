"""A range is woken: a job looks at it at once, for new groups, or for groups whose condition may hold now.

A registration that opens a group raises the range's dirty flag, and sends a job if the flag was down. The holder of the
lease lowers the flag before its load, or when its job ends. A wake-up names groups, raises the flag, and sends a job if
none was sent for wake-ups a moment ago (`GAP`): so a storm of wake-ups pokes a group at most once a second, and once at
each tick. What is lost here costs time and nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import ShardRange

GAP = 1.0  # seconds between two jobs of a range for wake-ups
MOST = 10_000  # groups of a range that wait to be poked at once
_KEPT = 3_600_000  # milliseconds


class Waking:
    """The flags of a pool's ranges, and the groups that are poked at once.

    :param flag_kept: milliseconds after which a dirty flag goes down by itself.
    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, flag_kept: int) -> None:
        self._store = store
        self._flag_kept = flag_kept

    def raise_flags(self, opened: Mapping[ShardRange, Iterable[int]]) -> list[ShardRange]:
        """Raise the flags of ranges; return those whose flag was down: the caller sends a job for each.

        :param opened: each range with those of its new groups that the load does not find, because their registration
            took long; mostly none.
        """
        pipeline = self._store.pipeline()
        for shard_range, group_ids in opened.items():
            self._add(pipeline, shard_range, group_ids)
        for shard_range in opened:
            pipeline.set(self._store.key(shard_range, "dirty"), "1", nx=True, px=self._flag_kept)
        answers = self._store.call(pipeline.execute)[-len(opened) :]
        return [shard_range for shard_range, was_down in zip(opened, answers, strict=True) if was_down]

    def keep(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Leave groups that could not be poked now to the next job; none is sent for them."""
        pipeline = self._store.pipeline()
        if self._add(pipeline, shard_range, group_ids):
            self._store.call(pipeline.execute)

    def wake(self, groups: Mapping[ShardRange, Sequence[int]]) -> tuple[list[ShardRange], int]:
        """Have groups poked at once.

        :param groups: their ids, by range.
        :returns: the ranges for which the caller sends a job, and how many wake-ups were dropped.
        """
        answers = {shard_range: self._wake(shard_range, group_ids) for shard_range, group_ids in groups.items()}
        sent = [shard_range for shard_range, (is_first, *_) in answers.items() if is_first]
        return sent, sum(dropped for _, dropped, _ in answers.values())

    def look(self, shard_range: ShardRange) -> tuple[bool, float]:
        """Return whether groups were woken for which no job was sent, so the caller sends one; and when to ask again.

        :returns: seconds; 0: who wakes a group then sends a job.
        """
        is_first, _, left = self._wake(shard_range, ())
        return bool(is_first), left / 1000

    def _add(self, pipeline: Any, shard_range: ShardRange, group_ids: Iterable[int]) -> bool:
        """Add groups that are to be poked at once to a pipeline; return whether there are any."""
        if ids := list(group_ids):
            name = self._store.key(shard_range, "woken")
            pipeline.sadd(name, *ids)
            pipeline.pexpire(name, _KEPT)
        return bool(ids)

    def _wake(self, shard_range: ShardRange, group_ids: Sequence[int]) -> list[int]:
        keys = [self._store.key(shard_range, name) for name in ("woken", "dirty", "nudged")]
        limits = [round(GAP * 1000), self._flag_kept, _KEPT, MOST]
        return [int(each) for each in self._store.run("wake", keys, [*limits, *group_ids])]
