"""Quick pokes in a row on one thread: a hand-over to a thread costs more than a quick poke."""

import time
from collections import deque
from collections.abc import Iterable
from contextvars import Context

from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.copies import FORKED, end_copy
from sensorpool.poke.tools import PokeTools, overran
from sensorpool.poke.unit import PokeUnit

SIZE = 64  # pokes of a quick class that a thread takes up at once

_NOT_LANDED = Outcome.NOT_LANDED
_monotonic = time.monotonic


class QuickBatch:
    """Groups of a quick class, poked one after the other by one thread: the path of most pokes, so every line counts.

    The lane's supervisor may take back the units that wait behind a slow one.
    """

    __slots__ = ("_poking", "_reports", "_tools", "_waiting", "began", "op_classpath")

    def __init__(self, units: Iterable[PokeUnit], tools: PokeTools) -> None:
        self.began = 0.0
        self._waiting = deque(units)
        self.op_classpath = self._waiting[0].op_classpath
        self._poking: PokeUnit | None = None
        self._reports: list[Report] = []
        self._tools = tools

    @property
    def groups(self) -> list[DueGroup]:
        """The groups whose poke has not begun."""
        return [unit.group for unit in self._waiting]

    def poke(self) -> list[Report]:
        """Poke the units one after the other; return the reports of all."""
        take, report, began = self._waiting.popleft, self._reports.append, _monotonic()
        try:
            while True:
                self._poking = unit = take()
                group, poke, own = unit.group, unit._poke, Context()  # what a poke sets there, no other poke sees
                if poke is None:
                    self._reports += own.run(unit.poke)
                    end_copy()
                    self.began = began = _monotonic()
                    continue
                try:
                    value = own.run(poke, {})
                except BaseException as error:
                    end_copy()
                    report(own.run(self._tools.answers.of_exception, group, began, error))
                    self.began = began = _monotonic()
                    continue
                if FORKED:
                    end_copy()
                self.began = now = _monotonic()
                if value is False:
                    report(Report(group, began, _NOT_LANDED, None, None, now - began))
                else:
                    report(own.run(unit.read, group, began, value))
                    self.began = now = _monotonic()
                began = now
        except IndexError:
            pass  # no unit waits
        if self._reports:
            took = sum([each.seconds for each in self._reports]) / len(self._reports)
            self._tools.pace[self.op_classpath] = took
        return self._reports

    def overran(self, limit: float) -> list[Report]:
        """Report what was seen, and that the unit that is being poked overran its limit (seconds)."""
        seen, poking = self._reports.copy(), self._poking
        if poking is None or (seen and seen[-1].group is poking.group):
            return seen  # the poke has just returned
        return [*seen, overran(poking.group, self.began, limit)]

    def rest(self) -> Iterable[PokeUnit]:
        """Take back the units whose poke has not begun."""
        taken: list[PokeUnit] = []
        try:
            while True:
                taken.append(self._waiting.popleft())
        except IndexError:
            return taken
