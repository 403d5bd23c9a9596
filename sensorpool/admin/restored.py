"""What follows a restore of the database: a new epoch, in which nothing of the time after the backup counts."""

from typing import NamedTuple

from sensorpool.client.pool import Pool
from sensorpool.config.defaults import MEMORY
from sensorpool.errors import Refused
from sensorpool.store import inspecting
from sensorpool.store.pool_id import restore_ids


class Restored(NamedTuple):
    """The new epoch: the pool's id, how many instances wait, and how many keys of Redis were deleted."""

    pool_id: str
    waiting: int
    deleted: int


def begin_epoch(pool: Pool) -> Restored:
    """Begin a new epoch. Nothing of the pool may run meanwhile.

    :raises Refused: when workers run.
    :raises Unreachable: when the database or Redis does not answer.
    """
    if workers := pool.workers():
        names = ", ".join(sorted({each.name for each in workers})[:3])
        raise Refused(f"workers of this pool run ({names}): stop all workers and beats first, and then say it again")
    deleted = 0 if pool.settings.redis_url == MEMORY else pool.leases.store.forget_all()
    pool_id = pool.database.run(restore_ids)
    _, waiting = pool.database.read(inspecting.count_waiting)
    return Restored(pool_id, waiting, deleted)
