"""Jobs that are not for this worker: another pool's, and those of ranges that this pool is not cut into.

Two pools on one broker get each other's messages: they are refused. A beat or registrant of our pool that runs with
other ``shards`` sends jobs for ranges that overlap ours. To poke them would be to poke groups twice, so they are sent
on as jobs of the ranges of ours that cover them.
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
    """Whether a job is another pool's."""
    said = getattr(request, wire.POOL, None)
    if not is_of_another_pool(said, worker.pool_id.get()):
        return False
    if not is_of_another_pool(said, worker.pool_id.look_again()):  # the tables were made anew
        return False
    worker.metrics.refused()
    if _is_first("refused"):
        log.error(
            "a job of another pool came by our broker and is refused: use one database, or give a pool a namespace",
            ours=worker.pool_id.get(),
            theirs=str(said)[:40],
        )
    return True


def send_on(worker: Worker, ranges: Collection[ShardRange], shard_range: ShardRange, request: Any) -> int:
    """Send a job of a range that is none of ours on to the ranges that cover it; return how many.

    :raises Unreachable: when Redis or the broker does not answer.
    """
    if getattr(request, wire.AGAIN, None) is not None:
        return 0  # workers that disagree would send it to and fro
    worker.roster.note_foreign(shard_range)
    if _is_first("foreign"):
        log.error(
            "jobs come for a range that this pool is not cut into: a beat or a registrant has other SHARDS",
            shard_range=str(shard_range),
            shards=worker.settings.shards,
        )
    cover = covering(shard_range, sorted(ranges, key=lambda each: each.shard_min))
    is_new = worker.leases.dirty_flags.take_down(shard_range)  # an older version's registrant raised it
    for each in cover:
        if is_new:
            worker.leases.dirty_flags.put_up(each)
        worker.outbox.nudge(each, again=True)
    return len(cover)


def _is_first(kind: str) -> bool:
    """Whether something was not said lately: once in a while is enough."""
    now = time.monotonic()
    if now - _said.get(kind, -_SAY_EVERY) < _SAY_EVERY:
        return False
    _said[kind] = now
    return True
