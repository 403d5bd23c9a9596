"""The dirty flag of a range: a registration opened a group, so a job should look at the range at once.

The registration that raises the flag sends that job. The lease's holder lowers the flag before its load, or when its
job ends.
"""

from collections.abc import Iterable
from typing import Any

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import ShardRange

_LATE_KEPT = 3_600  # seconds


def at_once(group_id: int) -> int:
    """Return what stands among a range's late groups for a group to be poked at once, whenever it was poked last."""
    return -group_id


def asked_for(late: Iterable[int]) -> set[int]:
    """Return the groups to be poked at once, of a range's late ones."""
    return {-group_id for group_id in late if group_id < 0}


class DirtyFlags:
    """The flags of a pool's ranges.

    :param kept: milliseconds after which a flag goes down by itself.
    :raises Unreachable: by every method but `add_to`, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, kept: int) -> None:
        self._store = store
        self._kept = kept

    def put_up(self, shard_range: ShardRange, late: Iterable[int] = ()) -> bool:
        """Raise the flag of a range; return whether it was down. Then the caller sends a job.

        :param late: new groups whose registration took so long that the load does not take them for new.
        """
        pipeline = self._store.pipeline()
        self.add_to(pipeline, shard_range, late)
        return bool(self._store.call(pipeline.execute)[-1])

    def keep(self, shard_range: ShardRange, late: Iterable[int]) -> None:
        """Leave groups that could not be poked now to the next job; no flag is raised, so none is sent for them."""
        pipeline = self._store.pipeline()
        if self._add_late(pipeline, shard_range, late):
            self._store.call(pipeline.execute)

    def add_to(self, pipeline: Any, shard_range: ShardRange, late: Iterable[int]) -> int:
        """Add the raising of a flag to a pipeline; return how many answers it adds, the last as of `put_up`."""
        answers = self._add_late(pipeline, shard_range, late)
        pipeline.set(self._store.key(shard_range, "dirty"), "1", nx=True, px=self._kept)
        return answers + 1

    def _add_late(self, pipeline: Any, shard_range: ShardRange, late: Iterable[int]) -> int:
        """Add late groups of a range to a pipeline; return how many answers that adds."""
        if not (ids := [str(group_id) for group_id in late]):
            return 0
        name = self._store.key(shard_range, "late")
        pipeline.sadd(name, *ids)
        pipeline.expire(name, _LATE_KEPT)
        return 2
