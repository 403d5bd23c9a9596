"""Why jobs and rescue do not get done, kept in Redis for those who look: so that it stands not only in a worker's log.

Disposable. The cause of a range goes by itself when no job of it fails any more; that of a chore when it is done.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.lease import Leases
from sensorpool.model.values import ShardRange

RANGE_KEPT = 30.0  # seconds, and some ticks
CHORES_KEPT = 86_400  # seconds
ROUNDS = 3  # after which a chore that fails is told
_LONGEST = 300  # characters
_GARBLED = (ValueError, TypeError, AttributeError, RecursionError)


class Trouble:
    """What is in the way, on the Redis of some leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._store = leases.store
        self._chores = leases.store.pool_key("rescue")

    def note_job(self, shard_range: ShardRange, cause: str, tick: float) -> None:
        """Note why a job of a range failed."""
        name, kept = self._store.key(shard_range, "trouble"), round((RANGE_KEPT + 4 * tick) * 1000)
        self._store.call(self._store.client.set, name, safe_line(cause, _LONGEST), px=kept)

    def of_jobs(self, ranges: Sequence[ShardRange]) -> dict[ShardRange, str]:
        """Return why jobs of these ranges failed lately."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            pipeline.get(self._store.key(shard_range, "trouble"))
        found = zip(ranges, self._store.call(pipeline.execute, raise_on_error=False), strict=True)
        return {shard_range: safe_line(cause, _LONGEST) for shard_range, cause in found if isinstance(cause, str)}

    def note_chores(self, failed: Mapping[str, str], done: Iterable[str]) -> None:
        """Note which of rescue's chores failed in a round, with why, and which were done."""
        pipeline = self._store.pipeline()
        before = self._read_chores() if failed else {}
        pipeline.hdel(self._chores, "", *done)
        for chore, cause in failed.items():
            rounds = before.get(chore, (0, ""))[0] + 1
            pipeline.hset(self._chores, chore, json.dumps([rounds, safe_line(cause, _LONGEST)]))
        pipeline.expire(self._chores, CHORES_KEPT)
        self._store.call(pipeline.execute)

    def of_chores(self) -> dict[str, str]:
        """Return which of rescue's chores have failed for some rounds, and why."""
        found = self._read_chores().items()
        return {safe_line(chore, _LONGEST): cause for chore, (rounds, cause) in found if rounds >= ROUNDS}

    def _read_chores(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for chore, text in (self._store.read_hash(self._chores) or {}).items():
            try:
                rounds, cause = json.loads(text)
                found[str(chore)] = min(max(int(rounds), 0), 1_000_000), safe_line(cause, _LONGEST)
            except (*_GARBLED, OverflowError):
                continue
        return found
