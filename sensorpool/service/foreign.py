"""Jobs that are not for this worker: jobs of another pool, and jobs for ranges that this pool does not have.

Two pools on one broker get each other's messages; a worker refuses them. A beat or client of our pool that runs with
other ``shards`` sends jobs for ranges that overlap ours. To poke such a range would poke groups twice, so the worker
sends jobs for those of our ranges that cover it.
"""

import time
from collections.abc import Collection
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.model.terms import covering
from sensorpool.model.values import ShardRange
from sensorpool.publish import wire
from sensorpool.publish.exchange import is_of_another_pool
from sensorpool.worker.context import Worker

_SAY_EVERY = 600.0  # seconds
_said: dict[str, float] = {}

log = logger(__name__)


def is_refused(worker: Worker, request: Any) -> bool:
    """Whether a job belongs to another pool, so that it is refused."""
    theirs = getattr(request, wire.POOL, None)
    if not is_of_another_pool(theirs, worker.pool_id.get()):
        return False
    if not is_of_another_pool(theirs, worker.pool_id.look_again()):  # the tables were made anew
        return False
    worker.metrics.count("jobs_refused")
    if _is_first("refused"):
        log.error(
            "a job of another pool came by our broker and is refused: use one database, or give a pool a namespace",
            ours=worker.pool_id.get(),
            theirs=str(theirs)[:40],
        )
    return True


def send_on(worker: Worker, ranges: Collection[ShardRange], shard_range: ShardRange, request: Any) -> int:
    """Send jobs for our ranges that cover a foreign range; return how many.

    :param ranges: our ranges.
    :param shard_range: the foreign range.
    :raises Unreachable: when Redis or the broker does not answer.
    """
    if getattr(request, wire.AGAIN, None) is not None:
        return 0  # workers with different ranges would send it to and fro
    worker.roster.note_foreign(shard_range)
    if _is_first("foreign"):
        log.error(
            "jobs come for a range that this pool is not cut into: a beat or a registrant has other SHARDS",
            shard_range=str(shard_range),
            shards=worker.settings.shards,
        )
    cover = covering(shard_range, sorted(ranges, key=lambda each: each.shard_min))
    for each in cover:
        worker.outbox.nudge(each, again=True)
    return len(cover)


def _is_first(kind: str) -> bool:
    """Whether an event was not logged in the last `_SAY_EVERY` seconds."""
    now = time.monotonic()
    if now - _said.get(kind, -_SAY_EVERY) < _SAY_EVERY:
        return False
    _said[kind] = now
    return True
