"""Pokes that overran their limit because their process stood still, or was killed: they say nothing of their groups.

Such a poke is no fact: no sensor times out by it, it is no overrun in a row, and its group becomes no suspect. The
group is poked again at its next turn. A poke that always freezes its process times out all the same: after `MOST` such
pokes in a row, the next one counts.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

from sensorpool.instrumentation.logs import logger
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.settle.overruns import is_overrun

MOST = 2  # pokes of one group in a row, in one process
_GROUPS = 10_000  # remembered

log = logger(__name__)


class FrozenPokes:
    """Tells pokes that overran from pokes whose process was stopped. Safe to share between threads.

    :param stood_still: whether the process stood still between two moments of the monotonic clock.
    :param poke_timeout: the time limit of a poke, in seconds.
    """

    def __init__(self, stood_still: Callable[[float, float], bool], poke_timeout: float) -> None:
        self._stood_still = stood_still
        self._poke_timeout = poke_timeout
        self._in_a_row: dict[int, int] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether any group is remembered."""
        return bool(self._in_a_row)

    def count(self, overran: Sequence[Report]) -> list[Report]:
        """Return the pokes that overran by themselves; count the others."""
        doubtful = [report for report in overran if self._is_doubtful(report)]
        if not doubtful and not self:
            return list(overran)
        with self._lock:
            left_out = set()
            for report in doubtful:
                group_id = report.group.id
                before = self._in_a_row.get(group_id, 0)
                if before < MOST and (before or len(self._in_a_row) < _GROUPS):
                    self._in_a_row[group_id] = before + 1
                    left_out.add(group_id)
            counted = [report for report in overran if report.group.id not in left_out]
            self._forget(counted)
        if left_out:
            log.info(
                "pokes overran their limit as their process stood still or was killed; they are made again",
                groups=len(left_out),
            )
        return counted

    def answered(self, reports: Iterable[Report]) -> None:
        """Forget the groups whose poke gave an answer."""
        with self._lock:
            self._forget(report for report in reports if report.outcome is not Outcome.POKE_TIMEOUT)

    def _forget(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._in_a_row.pop(report.group.id, None)

    def _is_doubtful(self, report: Report) -> bool:
        if not is_overrun(report, self._poke_timeout):
            return True  # its process was killed early
        # a gap by which it overran began before its limit was over
        return self._stood_still(report.began, report.began + max(report.seconds, self._poke_timeout))
