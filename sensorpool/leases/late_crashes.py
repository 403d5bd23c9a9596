"""Late crashes: a process dies, and a thread or timer that an ended poke left in it may be the reason.

What a poke leaves behind (a thread of a native client, a timer) may end its process a moment later. By then its group
is no longer in flight, and the groups in flight are innocent. So the worker's main process, which sees each death,
counts it for all groups that the process poked last. A group that is counted three times is watched: it is poked in a
child that lives on for a while, so that such a death has one group to blame. A kill from outside counts for no group.

The counts lie in Redis, disposable and bounded: the hash ``deaths`` of each range, by group.
"""

from collections.abc import Iterable, Sequence

from sensorpool.leases.answers import by_id, read_count
from sensorpool.leases.lease import Leases
from sensorpool.leases.poke_log import poked_by, process_name
from sensorpool.leases.range_state import read_in_flight
from sensorpool.model.exit_status import is_from_outside
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import ShardRange

AGAIN = 3  # late crashes after which a group is watched
_KEPT = 86_400  # seconds
_RECENT = 10_000  # milliseconds: pokes that began this long before the process's last one are counted too
_TOGETHER = 16  # groups that are watched in one child at first
_COUNTED = 5_000  # the most groups of a range that have a count
_WATCHED = 64  # the most groups that one death adds to the watched: each takes a child, and some seconds


class LateCrashes:
    """The late crashes of a pool's groups, on the Redis of the given leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._store = leases.store

    def blame(
        self, ranges: Iterable[ShardRange], worker: str, pid: int, returncode: int, tokens: Iterable[str] = ()
    ) -> dict[ShardRange, list[int]]:
        """Count the death of a process for the groups that it poked; return the groups that are watched from now on.

        :param returncode: as `subprocess` gives it: negative for a signal.
        :param tokens: the tokens of the leases that the process held.
        """
        if is_from_outside(returncode):
            return {}
        watched: dict[ShardRange, list[int]] = {}
        room = _WATCHED
        for shard_range, group_ids in self._poked(list(ranges), process_name(worker, pid), set(tokens)).items():
            counts = self.count(shard_range, group_ids)
            again = [group_id for group_id, count in counts.items() if count >= AGAIN]
            again.sort(key=counts.__getitem__, reverse=True)
            if again := again[:room]:
                room -= len(again)
                self._leases.suspects.mark(shard_range, again, Suspicion.LATE_CRASHES)
                watched[shard_range] = again
        return watched

    def count(self, shard_range: ShardRange, group_ids: Sequence[int]) -> dict[int, int]:
        """Count one more late crash for each of these groups; return the new count of each."""
        if not group_ids:
            return {}
        name, known = self._key(shard_range), self._known(shard_range)
        counts = {group_id: known.get(group_id, 0) + 1 for group_id in group_ids[:_COUNTED]}
        pipeline = self._store.pipeline()
        if len(known | counts) > _COUNTED:  # most counts are old, or of groups that have settled
            pipeline.delete(name)
        pipeline.hset(name, mapping={str(group_id): count for group_id, count in counts.items()})
        pipeline.expire(name, _KEPT)
        self._store.call(pipeline.execute)
        return counts

    def shares(self, shard_range: ShardRange, group_ids: Sequence[int]) -> dict[int, int]:
        """Return how many groups may share a child with each of these: a quarter after each further late crash."""
        known = self._known(shard_range)
        return {group_id: max(1, _TOGETHER >> 2 * max(0, known.get(group_id, 0) - AGAIN)) for group_id in group_ids}

    def forget(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Forget the late crashes of groups that were watched and ended no process."""
        if names := [str(group_id) for group_id in group_ids]:
            self._store.call(self._store.client.hdel, self._key(shard_range), *names)

    def _poked(self, ranges: list[ShardRange], process: str, tokens: set[str]) -> dict[ShardRange, list[int]]:
        """Return the groups that a process had in flight, then the groups that it poked last, the latest first."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            pipeline.get(self._store.key(shard_range, "lease"))
            pipeline.get(self._store.key(shard_range, "note"))
        answers = self._store.call(pipeline.execute, raise_on_error=False)
        in_flight: dict[ShardRange, list[int]] = {}
        for shard_range, holder, text in zip(ranges, answers[::2], answers[1::2], strict=True):
            if isinstance(holder, str) and holder in tokens:
                in_flight[shard_range] = read_in_flight(text) if isinstance(text, str) else []
        logged = {shard_range: poked_by(self._leases.poke_log.records(shard_range), process) for shard_range in ranges}
        last = max((at for poked in logged.values() for at in poked.values()), default=0)
        suspected: dict[ShardRange, list[int]] = {}
        for shard_range, poked in logged.items():
            recent = [group_id for group_id, at in poked.items() if at >= last - _RECENT]
            recent.sort(key=poked.__getitem__, reverse=True)
            if group_ids := list(dict.fromkeys(in_flight.get(shard_range, []) + recent)):
                suspected[shard_range] = group_ids
        return suspected

    def _known(self, shard_range: ShardRange) -> dict[int, int]:
        fields = self._store.read_hash(self._key(shard_range))
        if fields is None:
            self._store.call(self._store.client.delete, self._key(shard_range))  # its type is one that we never write
            return {}
        return {group_id: read_count(text) for group_id, text in by_id(fields.items())}

    def _key(self, shard_range: ShardRange) -> str:
        return self._store.key(shard_range, "deaths")
