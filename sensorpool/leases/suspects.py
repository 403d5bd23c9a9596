"""The marks of suspects, beside the lease of their range: why each group is suspect, and how often it overran."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence

from redis.exceptions import RedisError

from sensorpool.leases.answers import by_id, read_count, read_ids
from sensorpool.leases.range_files import RangeFiles
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model import suspicion
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import ShardRange

_KEPT = 86_400  # seconds


class SuspectMarks:
    """The suspects of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._files: RangeFiles | None = None
        self._lock = threading.Lock()  # a file says what was marked last

    def keep_in_files(self, files: RangeFiles, ranges: Collection[ShardRange]) -> None:
        """Record the suspects in files too, and take up what the last process left there."""
        self._files = files
        for shard_range in ranges:
            if marks := files.suspects(shard_range):
                self._write(shard_range, marks)

    def mark(self, shard_range: ShardRange, group_ids: Iterable[int], why: Suspicion) -> None:
        """Mark groups as suspects: they are poked apart from the others."""
        self.mark_each(shard_range, dict.fromkeys(group_ids, why))

    def mark_each(self, shard_range: ShardRange, whys: Mapping[int, Suspicion], *, lost_turn: bool = False) -> None:
        """Mark groups as suspects, each for its own reason.

        :param lost_turn: whether they are due whatever the time.
        """
        if marked := {str(group_id): suspicion.spell(why, lost_turn=lost_turn) for group_id, why in whys.items()}:
            self._write(shard_range, marked)

    def restore(self, shard_range: ShardRange, whys: Mapping[int, Suspicion]) -> None:
        """Mark those of these groups that have no mark any more; Redis may have lost its data."""
        if whys:
            known = set(self.of(shard_range))
            self.mark_each(shard_range, {group_id: why for group_id, why in whys.items() if group_id not in known})

    def clear(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Clear the marks and the overruns of these groups."""
        if cleared := [str(group_id) for group_id in group_ids]:
            pipeline = self._store.pipeline()
            pipeline.hdel(self._store.key(shard_range, "suspects"), *cleared)
            pipeline.hdel(self._store.key(shard_range, "overruns"), *cleared)
            answers = self._store.call(pipeline.execute, raise_on_error=False)
            if isinstance(answers[0], RedisError):
                raise self._store.unreachable(answers[0])
            self._put_in_file(shard_range)

    def of(self, shard_range: ShardRange) -> list[int]:
        """Return the suspects of a range."""
        return read_ids(self._store.call(self._store.client.hgetall, self._store.key(shard_range, "suspects")))

    def why(self, shard_range: ShardRange, group_id: int) -> Suspicion | None:
        """Return why a group is suspect, if it is."""
        text = self._store.call(self._store.client.hget, self._store.key(shard_range, "suspects"), str(group_id))
        return None if text is None else suspicion.read([(group_id, text)])[0][group_id]

    def count_overruns(self, shard_range: ShardRange, group_ids: Sequence[int]) -> dict[int, int]:
        """Count one more overrun in a row for each of these groups; return the new count of each."""
        name = self._store.key(shard_range, "overruns")
        pipeline = self._store.pipeline()
        for group_id in group_ids:
            pipeline.hget(name, str(group_id))
        before = self._store.call(pipeline.execute) if group_ids else []
        counts = {group_id: read_count(text) + 1 for group_id, text in zip(group_ids, before, strict=True)}
        if counts:
            pipeline = self._store.pipeline()
            pipeline.hset(name, mapping={str(group_id): count for group_id, count in counts.items()})
            pipeline.expire(name, _KEPT)
            self._store.call(pipeline.execute)
        return counts

    def overruns(self, shard_range: ShardRange, group_id: int) -> int:
        """Return how many pokes of a group in a row overran."""
        text = self._store.call(self._store.client.hget, self._store.key(shard_range, "overruns"), str(group_id))
        return read_count(text)

    def count_overrunning(self, ranges: Sequence[ShardRange]) -> int:
        """Return the number of groups whose last poke overran."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            pipeline.hlen(self._store.key(shard_range, "overruns"))
        answers = self._store.call(pipeline.execute, raise_on_error=False)
        return sum(answer for answer in answers if isinstance(answer, int))

    def _write(self, shard_range: ShardRange, marks: Mapping[str, str]) -> None:
        name = self._store.key(shard_range, "suspects")
        pipeline = self._store.pipeline()
        pipeline.hset(name, mapping=marks)
        pipeline.expire(name, _KEPT)
        self._store.call(pipeline.execute)
        self._put_in_file(shard_range)

    def _put_in_file(self, shard_range: ShardRange) -> None:
        if self._files is not None:
            with self._lock:
                name = self._store.key(shard_range, "suspects")
                self._files.put_suspects(shard_range, self._store.call(self._store.client.hgetall, name))


def read_suspects(fields: Iterable[tuple[str, str]]) -> tuple[dict[int, Suspicion], list[int]]:
    """Read the marks of `SuspectMarks.mark`; return why each group is suspect, and the groups that lost their turn."""
    return suspicion.read(by_id(fields))
