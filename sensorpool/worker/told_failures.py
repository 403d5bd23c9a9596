"""What this process tells others of the failures of pokes outside of jobs, and what it is told."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice

from sensorpool.errors import Unreachable
from sensorpool.leases.outside_failures import OutsideFailures
from sensorpool.model.values import Failing, Milliseconds, Report, ShardRange, Told
from sensorpool.settle.infra_window import OutsideWindow

_UNTOLD = 10_000  # groups of a range

ByRange = Mapping[ShardRange, Sequence[Report]]


class ToldFailures:
    """The failures of groups whose pokes outside of jobs have ended. Safe to share between threads."""

    def __init__(self, kept: OutsideFailures) -> None:
        self._kept = kept
        self._untold: dict[ShardRange, dict[int, Milliseconds]] = {}  # answers that Redis could not be told
        self._lock = threading.Lock()

    def of(self, by_range: ByRange) -> dict[ShardRange, Told]:
        """Return what processes have told of these groups, for the ranges for which Redis answers."""
        found: dict[ShardRange, Told] = {}
        with suppress(Unreachable):
            for shard_range, reports in by_range.items():
                told = self._kept.of(shard_range, [report.group.id for report in reports])
                with self._lock:
                    ended = self._untold.get(shard_range, {}).copy()
                failing = {
                    each: failing for each, failing in told.failing.items() if ended.get(each, -1) < failing.since
                }
                found[shard_range] = told._replace(failing=failing)
        return found

    def tell(self, by_range: ByRange, told: Mapping[ShardRange, Told], window: OutsideWindow) -> None:
        """Tell which groups fail, and which do no more.

        :param told: what was told before (`of`).
        :raises Unreachable: when Redis does not answer; answers are told with the next ones.
        """
        away: Unreachable | None = None
        for shard_range, reports in by_range.items():
            failing, answered = _to_be_told(reports, told.get(shard_range), window)
            with self._lock:
                answered = self._untold.pop(shard_range, {}) | answered
            if away is None:
                try:
                    self._kept.keep(shard_range, failing, {e: at for e, at in answered.items() if e not in failing})
                    continue
                except Unreachable as error:
                    away = error
            with self._lock:
                untold = answered | self._untold.get(shard_range, {})
                self._untold[shard_range] = dict(islice(untold.items(), _UNTOLD))
        if away is not None:
            raise away


def _to_be_told(
    reports: Sequence[Report], before: Told | None, window: OutsideWindow
) -> tuple[dict[int, Failing], dict[int, Milliseconds]]:
    """Return the failures and the answers of a range that are to be told.

    :param before: what was told before; None: Redis did not say.
    """
    group_ids = [report.group.id for report in reports]
    failing = {each: window.failing[each] for each in group_ids if each in window.failing}
    answered = {each: window.answered[each] for each in group_ids if each in window.answered}
    if before is None:
        return {}, answered  # a failure may be older than it looks from here
    return failing, {each: at for each, at in answered.items() if each in before.failing}
