"""What went wrong lately, for operators: why jobs and rescue's chores fail, and deaths of the workers' children.

It is kept in Redis, so that a cause is not only in a worker's log, and is disposable. The cause of a range expires when
its jobs no longer fail; the cause of a chore goes when the chore is done.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.lease import Leases
from sensorpool.model.exit_status import ending, is_from_outside
from sensorpool.model.values import ShardRange

LATELY = 600.0  # seconds for which a death is reported
ROUNDS = 3  # failed rounds after which a chore is reported
_RANGE_KEPT = 30.0  # seconds, to which four ticks are added
_KEPT = 86_400  # seconds
_LONGEST = 300  # characters


class ChildDeath(NamedTuple):
    """The death of a child process."""

    worker: str
    cause: str
    outside: bool  # killed from outside: by a person, the kernel, or a time limit


class Incidents:
    """The incidents of a pool, on the Redis of the given leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._store = leases.store
        self._chores = leases.store.pool_key("rescue")
        self._deaths = leases.store.pool_key("deaths")

    def note_job(self, shard_range: ShardRange, cause: str, tick: float) -> None:
        """Note why a job of a range failed.

        :param tick: seconds between two ticks.
        """
        name, kept = self._store.key(shard_range, "trouble"), round((_RANGE_KEPT + 4 * tick) * 1000)
        self._store.call(self._store.client.set, name, safe_line(cause, _LONGEST), px=kept)

    def of_jobs(self, ranges: Sequence[ShardRange]) -> dict[ShardRange, str]:
        """Return why jobs of these ranges failed lately; a range without a failure is not in it."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            pipeline.get(self._store.key(shard_range, "trouble"))
        causes = zip(ranges, self._store.call(pipeline.execute), strict=True)
        return {shard_range: cause for shard_range, cause in causes if cause}

    def note_chores(self, failed: Mapping[str, str], done: Iterable[str]) -> None:
        """Note which of rescue's chores failed in a round, each with its cause, and which were done."""
        before = self._read_chores() if failed else {}
        pipeline = self._store.pipeline()
        pipeline.hdel(self._chores, "", *done)
        for chore, cause in failed.items():
            rounds = before.get(chore, (0, ""))[0] + 1
            pipeline.hset(self._chores, chore, json.dumps([rounds, safe_line(cause, _LONGEST)]))
        pipeline.expire(self._chores, _KEPT)
        self._store.call(pipeline.execute)

    def of_chores(self) -> dict[str, str]:
        """Return the cause of each of rescue's chores that has failed for `ROUNDS` rounds or more."""
        return {chore: cause for chore, (rounds, cause) in self._read_chores().items() if rounds >= ROUNDS}

    def add_death(self, worker: str, pid: int, returncode: int) -> None:
        """Record the death of a child, and drop the deaths that are older than `LATELY`."""
        now = self._store.now()
        pipeline = self._store.pipeline()
        pipeline.zremrangebyscore(self._deaths, "-inf", now - round(LATELY * 1000))
        pipeline.zadd(self._deaths, {json.dumps([now, worker[:_LONGEST], pid, returncode]): now})
        pipeline.expire(self._deaths, _KEPT)
        self._store.call(pipeline.execute)

    def deaths(self) -> list[ChildDeath]:
        """Return the deaths of the last `LATELY` seconds, the oldest first."""
        since = self._store.now() - round(LATELY * 1000)
        texts = self._store.call(self._store.client.zrangebyscore, self._deaths, since, "+inf")
        read = [(safe_line(worker, _LONGEST), code) for _, worker, _, code in map(json.loads, texts)]
        return [ChildDeath(worker, ending(code), is_from_outside(code)) for worker, code in read]

    def _read_chores(self) -> dict[str, tuple[int, str]]:
        found = self._store.call(self._store.client.hgetall, self._chores)
        return {chore: tuple(json.loads(text)) for chore, text in found.items()}
