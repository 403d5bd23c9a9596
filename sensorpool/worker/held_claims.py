"""The claims of this process on the groups that it pokes outside of jobs, so that no job pokes them as well."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sensorpool.leases.claims import Claims
from sensorpool.model.values import Milliseconds, Report, ShardRange


class HeldClaims:
    """The claims of one process, and the range of each group that it holds. Safe to share between threads.

    :param seconds: after which a claim ends that is not renewed.
    """

    def __init__(self, claims: Claims, seconds: float) -> None:
        self._claims = claims
        self._seconds = seconds
        self._held: dict[int, tuple[ShardRange, Milliseconds]] = {}  # the range of each group, and since when it waits
        self._unmarked: set[int] = set()  # held groups whose claim was made again, and whose mark perhaps was not
        self._lock = threading.Lock()

    def take(self, shard_range: ShardRange, group_ids: Sequence[int], due: Milliseconds) -> list[int]:
        """Claim groups of a range; return the groups that no process had claimed.

        :param due: since when the groups wait for this poke, by the database's clock.
        :raises Unreachable: when Redis does not answer.
        """
        return self._claims.take(shard_range, group_ids, self._seconds, due)

    def hold(self, shard_range: ShardRange, group_ids: Iterable[int], due: Milliseconds) -> None:
        """Hold groups until their pokes are reported.

        :param due: see `take`.
        """
        with self._lock:
            self._held.update(dict.fromkeys(group_ids, (shard_range, due)))

    def held(self, shard_range: ShardRange) -> list[int]:
        """Return the groups of a range that are held."""
        with self._lock:
            return [group_id for group_id, (its_range, _) in self._held.items() if its_range == shard_range]

    def renew(self, group_ids: Iterable[int], restore: Callable[[ShardRange, list[int]], object]) -> None:
        """Renew the claims on the groups that are held; make those again that have ended.

        :param restore: marks groups of a range again, if their marks are lost: Redis may have lost these, too.
        :raises Unreachable: when Redis does not answer; then `restore` is called for these groups the next time.
        """
        held: dict[ShardRange, dict[int, Milliseconds]] = defaultdict(dict)
        with self._lock:
            for group_id in group_ids:
                if (found := self._held.get(group_id)) is not None:
                    held[found[0]][group_id] = found[1]
        if not held:
            return
        ids = {group_id for groups in held.values() for group_id in groups}
        with self._lock:
            doubtful = self._unmarked & ids
            self._unmarked |= ids  # should the answer be lost
        again = self._claims.renew(held, self._seconds)
        for shard_range, groups in held.items():
            unmarked = {*again.get(shard_range, ()), *(doubtful & groups.keys())}
            with self._lock:
                ended = unmarked - self._held.keys()
            if ended:
                self._claims.drop(shard_range, ended)  # they were dropped between the look and the renewal
            if unmarked := unmarked - ended:
                restore(shard_range, sorted(unmarked))
        with self._lock:
            self._unmarked -= ids

    def drop(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Let go of groups in Redis: jobs poke them again.

        :raises Unreachable: when Redis does not answer.
        """
        self._claims.drop(shard_range, group_ids)

    def let_go(self, group_ids: Iterable[int]) -> dict[ShardRange, list[int]]:
        """Hold groups no more; return the groups that were held, by range. Redis learns of it by `drop`."""
        by_range: dict[ShardRange, list[int]] = defaultdict(list)
        with self._lock:
            for group_id in group_ids:
                if (found := self._held.pop(group_id, None)) is not None:
                    by_range[found[0]].append(group_id)
        return by_range

    @contextmanager
    def ending(self, reports: Sequence[Report]) -> Iterator[Mapping[ShardRange, list[Report]]]:
        """Yield the reports of the groups that are held, by range; in the end, whatever went wrong, these are dropped.

        :raises Unreachable: when Redis does not answer.
        """
        held = self.let_go([report.group.id for report in reports])
        of_group = {report.group.id: report for report in reports}
        try:
            yield {
                shard_range: [of_group[group_id] for group_id in group_ids] for shard_range, group_ids in held.items()
            }
        finally:
            for shard_range, group_ids in held.items():
                self.drop(shard_range, group_ids)
