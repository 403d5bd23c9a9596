"""Quick pokes in a row on one thread: a hand-over to a thread costs more than a quick poke."""

import math
import time
from collections import deque
from collections.abc import Iterable
from contextvars import Context

from sensorpool.model.not_landed import Seen, not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.copies import FORKED, end_copy
from sensorpool.poke.tools import PokeTools, overran
from sensorpool.poke.unit import PokeUnit

_PARTS = 4
SIZE = 64  # pokes of a quick class that a thread takes up at once

_INSTANT = 1e-3  # seconds: a poke that found nothing and took no longer needs no report of its own
_NOT_LANDED = Outcome.NOT_LANDED
_monotonic = time.monotonic


class QuickBatch:
    """Groups of a quick class, poked one after the other by one thread: the path of most pokes, so every line counts.

    The lane's supervisor may take back the units that wait behind a slow one.
    """

    __slots__ = (
        "_began",
        "_found_nothing",
        "_poking",
        "_reports",
        "_tools",
        "_waiting",
        "began",
        "op_classpath",
        "size",
    )

    def __init__(self, units: Iterable[PokeUnit], tools: PokeTools) -> None:
        self.began = 0.0
        self._waiting = deque(units)
        self.size = len(self._waiting)
        self.op_classpath = self._waiting[0].op_classpath
        self._poking: DueGroup | None = None  # as it was when its poke began
        self._reports: list[Report] = []
        self._found_nothing: list[DueGroup] = []
        self._began: list[float] = []  # when the poke of each of these began; never shorter than they are
        self._tools = tools

    @property
    def groups(self) -> list[DueGroup]:
        """The groups whose poke has not begun."""
        return [unit.group for unit in self._waiting]

    def poke(self) -> list[Seen]:
        """Poke the units one after the other; return what all saw."""
        take, report, note_began, found_nothing = (
            self._waiting.popleft,
            self._reports.append,
            self._began.append,
            self._found_nothing.append,
        )
        began = first = _monotonic()
        try:
            while True:
                unit = take()
                self._poking = group = unit.group
                poke, own = unit._poke, Context()  # what a poke sets there, no other poke sees
                if poke is None:
                    made = own.run(unit.poke)
                    end_copy()
                    self.began = now = _monotonic()
                    if len(made) == 1 and made[0].outcome is _NOT_LANDED and now - began < _INSTANT:
                        note_began(began)
                        found_nothing(made[0].group)
                    else:
                        self._reports += made
                    began = now
                    continue
                try:
                    value = own.run(poke, {})
                except BaseException as error:
                    report(own.run(self._tools.answers.of_exception, group, began, error))
                    self.began = began = _monotonic()
                    continue
                if FORKED:
                    end_copy()
                self.began = now = _monotonic()
                if value is False and now - began < _INSTANT:
                    note_began(began)
                    found_nothing(group)
                else:
                    report(own.run(unit.read, group, began, value))
                    self.began = now = _monotonic()
                began = now
        except IndexError:
            pass  # no unit waits
        if poked := len(self._reports) + len(self._found_nothing):
            self._tools.pace[self.op_classpath] = min((began - first) / poked, self._best_pace())
        return self._seen(self._found_nothing, self._reports, began - first)

    def _best_pace(self) -> float:
        """Return how long a poke took in the best part of the batch: in others, another thread may have run."""
        began, part = self._began, len(self._began) // _PARTS
        if not part:
            return math.inf
        return min([began[at + part] - began[at] for at in range(0, (_PARTS - 1) * part, part)]) / part

    def overran(self, limit: float) -> list[Seen]:
        """Report what was seen, and that the unit that is being poked overran its limit (seconds)."""
        found_nothing, reports, poking = self._found_nothing.copy(), self._reports.copy(), self._poking
        seen = self._seen(found_nothing, reports, 0.0)
        last = [*found_nothing[-1:], *(report.group for report in reports[-1:])]
        if poking is None or any(group is poking for group in last):
            return seen  # the poke has just returned
        return [*seen, overran(poking, self.began, limit)]

    def _seen(self, found_nothing: list[DueGroup], reports: list[Report], seconds: float) -> list[Seen]:
        """Return what was seen, in as few values as may be.

        :param seconds: what all pokes took.
        """
        if not found_nothing:
            return [*reports]
        rest = max(0.0, seconds - sum([report.seconds for report in reports])) / len(found_nothing)
        return [not_landed(found_nothing, self._began[: len(found_nothing)], rest), *reports]

    def rest(self) -> Iterable[PokeUnit]:
        """Take back the units whose poke has not begun."""
        taken: list[PokeUnit] = []
        try:
            while True:
                taken.append(self._waiting.popleft())
        except IndexError:
            return taken
