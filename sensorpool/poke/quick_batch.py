"""Quick pokes in a row on one thread: a hand-over to a thread costs more than a quick poke."""

from collections import deque
from collections.abc import Iterable
from contextvars import Context

from sensorpool.model.not_landed import Seen, not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.copies import FORKED, end_copy
from sensorpool.poke.queues import drained
from sensorpool.poke.tools import overran
from sensorpool.poke.unit import PokeUnit

SIZE = 64  # pokes of a quick class that a thread takes up at once

_INSTANT = 1e-3  # seconds: a poke that found nothing and took no longer needs no report of its own
_NOT_LANDED = Outcome.NOT_LANDED


class QuickBatch:
    """Groups of a quick class, poked one after the other by one thread: the path of most pokes, so every line counts.

    The lane's supervisor may take back the units that wait behind a slow one.
    """

    __slots__ = ("_found_nothing", "_poking", "_reports", "_waiting", "began", "op_classpath", "size")

    def __init__(self, units: Iterable[PokeUnit]) -> None:
        self.began = 0.0
        self._waiting = deque(units)
        self.size = len(self._waiting)
        self.op_classpath = self._waiting[0].op_classpath
        self._poking: PokeUnit | None = None
        self._reports: list[Report] = []
        self._found_nothing: list[Report] = []

    @property
    def groups(self) -> list[DueGroup]:
        """The groups whose poke has not begun."""
        return [unit.group for unit in self._waiting]

    def poke(self) -> list[Seen]:
        """Poke the units one after the other; return what all saw."""
        take, found_nothing = self._waiting.popleft, self._found_nothing.append
        while self._waiting:
            try:
                self._poking = unit = take()
            except IndexError:
                break  # the supervisor has taken the rest back
            [report] = Context().run(unit.poke)  # what a poke sets there, no other poke sees
            if FORKED:
                end_copy()
            self.began = report.began + report.seconds
            if report.outcome is _NOT_LANDED and report.seconds < _INSTANT:
                found_nothing(report)
            else:
                self._reports.append(report)
        return self._seen()

    def overran(self, limit: float) -> list[Seen]:
        """Report what was seen, and that the unit that is being poked overran its limit (seconds)."""
        seen, poking = self._seen(), self._poking
        last = [report.group for report in (*self._found_nothing[-1:], *self._reports[-1:])]
        if poking is None or any(group is poking.begun for group in last):
            return seen  # the poke has just returned
        return [*seen, overran(poking.begun, self.began, limit)]

    def _seen(self) -> list[Seen]:
        """Return what was seen, in as few values as may be."""
        found_nothing, reports = self._found_nothing.copy(), self._reports.copy()
        if not found_nothing:
            return [*reports]
        seconds = sum([report.seconds for report in found_nothing]) / len(found_nothing)
        began = [report.began for report in found_nothing]
        return [not_landed([report.group for report in found_nothing], began, seconds), *reports]

    def rest(self) -> Iterable[PokeUnit]:
        """Take back the units whose poke has not begun."""
        return drained(self._waiting)
