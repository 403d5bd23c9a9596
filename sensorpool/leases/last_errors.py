"""Why jobs and rescue's chores fail, kept in Redis for operators, so that the cause is not only in a worker's log.

Disposable. The cause of a range expires when its jobs no longer fail; the cause of a chore goes when the chore is done.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.lease import Leases
from sensorpool.model.values import ShardRange

RANGE_KEPT = 30.0  # seconds, to which four ticks are added
CHORES_KEPT = 86_400  # seconds
ROUNDS = 3  # failed rounds after which a chore is reported
_LONGEST = 300  # characters
_GARBLED = (ValueError, TypeError, AttributeError, RecursionError)


class LastErrors:
    """The causes of failures, on the Redis of the given leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._store = leases.store
        self._chores = leases.store.pool_key("rescue")

    def note_job(self, shard_range: ShardRange, cause: str, tick: float) -> None:
        """Note why a job of a range failed.

        :param tick: seconds between two ticks.
        """
        name, kept = self._store.key(shard_range, "trouble"), round((RANGE_KEPT + 4 * tick) * 1000)
        self._store.call(self._store.client.set, name, safe_line(cause, _LONGEST), px=kept)

    def of_jobs(self, ranges: Sequence[ShardRange]) -> dict[ShardRange, str]:
        """Return why jobs of these ranges failed lately; a range without a failure is not in it."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            pipeline.get(self._store.key(shard_range, "trouble"))
        causes = zip(ranges, self._store.call(pipeline.execute, raise_on_error=False), strict=True)
        return {shard_range: safe_line(cause, _LONGEST) for shard_range, cause in causes if isinstance(cause, str)}

    def note_chores(self, failed: Mapping[str, str], done: Iterable[str]) -> None:
        """Note which of rescue's chores failed in a round, each with its cause, and which were done."""
        pipeline = self._store.pipeline()
        before = self._read_chores() if failed else {}
        pipeline.hdel(self._chores, "", *done)
        for chore, cause in failed.items():
            rounds = before.get(chore, (0, ""))[0] + 1
            pipeline.hset(self._chores, chore, json.dumps([rounds, safe_line(cause, _LONGEST)]))
        pipeline.expire(self._chores, CHORES_KEPT)
        self._store.call(pipeline.execute)

    def of_chores(self) -> dict[str, str]:
        """Return the cause of each of rescue's chores that has failed for `ROUNDS` rounds or more."""
        failed = self._read_chores().items()
        return {safe_line(chore, _LONGEST): cause for chore, (rounds, cause) in failed if rounds >= ROUNDS}

    def _read_chores(self) -> dict[str, tuple[int, str]]:
        failed: dict[str, tuple[int, str]] = {}
        for chore, text in (self._store.read_hash(self._chores) or {}).items():
            try:
                rounds, cause = json.loads(text)
                failed[str(chore)] = min(max(int(rounds), 0), 1_000_000), safe_line(cause, _LONGEST)
            except (*_GARBLED, OverflowError):
                continue
        return failed
