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

    The lane's supervisor may take back the units that wait behind a slow one, and what those before it saw.
    """

    __slots__ = ("_found_nothing", "_poking", "_reports", "_waiting", "began", "op_classpath", "size")

    def __init__(self, units: Iterable[PokeUnit]) -> None:
        self.began = 0.0
        self._waiting = deque(units)
        self.size = len(self._waiting)
        self.op_classpath = self._waiting[0].op_classpath
        self._poking: PokeUnit | None = None
        self._reports: deque[Report] = deque()
        self._found_nothing: deque[Report] = deque()

    @property
    def groups(self) -> list[DueGroup]:
        """The groups whose poke has not begun."""
        return [unit.group for unit in self._waiting]

    def poke(self) -> list[Seen]:
        """Poke the units one after the other; return what they saw and `seen` has not taken."""
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
        return self.seen()

    def overran(self, limit: float) -> list[Seen]:
        """Report what was seen, and that the unit that is being poked overran its limit (seconds)."""
        found_nothing, reports, poking = drained(self._found_nothing), drained(self._reports), self._poking
        seen = _in_few(found_nothing, reports)
        if poking is None or any(report.group is poking.begun for report in (*found_nothing[-1:], *reports[-1:])):
            return seen  # the poke has just returned
        return [*seen, overran(poking.begun, self.began, limit)]

    def seen(self) -> list[Seen]:
        """Take what was seen so far."""
        return _in_few(drained(self._found_nothing), drained(self._reports))

    def rest(self) -> Iterable[PokeUnit]:
        """Take back the units whose poke has not begun."""
        return drained(self._waiting)


def _in_few(found_nothing: list[Report], reports: list[Report]) -> list[Seen]:
    """Return reports in as few values as may be."""
    if not found_nothing:
        return [*reports]
    seconds = sum([report.seconds for report in found_nothing]) / len(found_nothing)
    began = [report.began for report in found_nothing]
    return [not_landed([report.group for report in found_nothing], began, seconds), *reports]
