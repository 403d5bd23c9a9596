"""What the lanes poke: a group with its sensor, some of them in a row, or many contexts of a class in one call."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sensorpool.model import DueGroup, Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes, SensorClass, Way
from sensorpool.states import Outcome

MANY = 500  # contexts in one call of poke_many
IN_A_ROW = 64  # pokes of a quick class that a thread takes up at once
QUICK = 50e-6  # seconds: a class whose pokes take no longer is quick
SLOW = 5e-3  # seconds: one whose pokes take longer waits for answers

_NOT_LANDED = Outcome.NOT_LANDED
_monotonic = time.monotonic


class Means(NamedTuple):
    """What it takes to poke: the classes, and how to read their answers."""

    classes: Classes
    answers: Answers
    pace: dict[str, float]  # how long the latest poke of a class took, in seconds


def overran(group: DueGroup, began: float, limit: float) -> Report:
    """Report a poke that overran its limit (seconds): what it would have seen is not known."""
    reason = f"the poke took longer than its limit of {limit:g} s"
    return Report(group, began, Outcome.POKE_TIMEOUT, reason, None, limit)


class One:
    """One group and its sensor, which is constructed at its first poke, under that poke's time limit."""

    __slots__ = ("_context", "_home", "_means", "_poke", "began", "group", "op_classpath")

    def __init__(self, group: DueGroup, op_classpath: str, poke_context: str, means: Means) -> None:
        self.group = group
        self.op_classpath = op_classpath
        self.began = 0.0
        self._means = means
        self._poke: Any = None  # that of the sensor, once it is constructed
        self._home = 0  # the event loop that it was constructed on, for clients belong to their loop
        self._context: Any = poke_context  # JSON text until it is read

    @property
    def groups(self) -> list[DueGroup]:
        """The group."""
        return [self.group]

    def poke(self) -> list[Report]:
        """Poke it."""
        group, began = self.group, _monotonic()  # as it is now: whoever joins while we poke was not asked for
        try:
            if self._poke is None:
                found = self._means.classes.find(self.op_classpath)
                if found.way is Way.MANY:  # it is poked apart from the others of its class
                    return Many([self], self._means).poke()
                self._construct(found)
            value = self._poke({})
        except BaseException as error:
            return [self._means.answers.of_exception(group, began, error)]
        if value is False:
            self._means.pace[self.op_classpath] = took = _monotonic() - began
            return [Report(group, began, _NOT_LANDED, None, None, took)]
        return [self._means.answers.of_value(group, began, value)]

    async def poke_async(self, home: int) -> list[Report]:
        """Poke it on the running event loop, which is called ``home``."""
        group, began = self.group, _monotonic()
        try:
            if self._poke is None or self._home != home:
                self._construct(self._means.classes.find(self.op_classpath))
                self._home = home
            value = await self._poke({})
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return [self._means.answers.of_exception(group, began, error)]
        return [self._means.answers.of_value(group, began, value)]

    def context(self, found: SensorClass) -> Any:
        """Return what a class that answers many is asked with.

        :raises Exception: when the context cannot be read.
        """
        if isinstance(self._context, str):
            self._context = found.construct(json.loads(self._context))
        return self._context

    def overran(self, limit: float) -> list[Report]:
        """Say that it overran."""
        return [overran(self.group, self.began, limit)]

    def rest(self) -> Iterable["One"]:
        """There is nothing behind it."""
        return ()

    def _construct(self, found: SensorClass) -> None:
        self._poke = found.construct(json.loads(self._context)).poke
        if found.way is not Way.ASYNC:  # that may have to be constructed on another loop
            self._context = None


class Row:
    """Groups of a quick class, poked one after the other by one thread: the path of most pokes, so every line counts.

    Whoever looks after the thread may take back those that wait behind one that turns out to be slow.
    """

    __slots__ = ("_means", "_poking", "_reports", "_waiting", "began", "op_classpath")

    def __init__(self, ones: Iterable[One], means: Means) -> None:
        self.began = 0.0
        self._waiting = deque(ones)
        self.op_classpath = self._waiting[0].op_classpath
        self._poking: One | None = None
        self._reports: list[Report] = []
        self._means = means

    @property
    def groups(self) -> list[DueGroup]:
        """The groups that wait."""
        return [one.group for one in self._waiting]

    def poke(self) -> list[Report]:
        """Poke one after the other, as long as there are some."""
        take, report, began = self._waiting.popleft, self._reports.append, _monotonic()
        try:
            while True:
                self._poking = one = take()
                group, poke = one.group, one._poke
                if poke is None:
                    self._reports += one.poke()
                    self.began = began = _monotonic()
                    continue
                try:
                    value = poke({})
                except BaseException as error:
                    report(self._means.answers.of_exception(group, began, error))
                    self.began = began = _monotonic()
                    continue
                self.began = now = _monotonic()
                if value is False:
                    report(Report(group, began, _NOT_LANDED, None, None, now - began))
                else:
                    report(self._means.answers.of_value(group, began, value))
                began = now
        except IndexError:
            pass  # nobody waits
        if self._reports:
            took = sum([each.seconds for each in self._reports]) / len(self._reports)
            self._means.pace[self.op_classpath] = took
        return self._reports

    def overran(self, limit: float) -> list[Report]:
        """Say what was seen, and that the one that is being poked overran."""
        seen, poking = self._reports.copy(), self._poking
        if poking is None or (seen and seen[-1].group is poking.group):
            return seen  # it came back this moment
        return [*seen, overran(poking.group, self.began, limit)]

    def rest(self) -> Iterable[One]:
        """Take back those that wait."""
        taken: list[One] = []
        try:
            while True:
                taken.append(self._waiting.popleft())
        except IndexError:
            return taken


class Many:
    """Groups of one class that answers many contexts in one call."""

    __slots__ = ("_means", "_ones", "began", "op_classpath")

    def __init__(self, ones: Sequence[One], means: Means) -> None:
        self.op_classpath = ones[0].op_classpath
        self.began = 0.0
        self._ones = ones
        self._means = means

    @property
    def groups(self) -> list[DueGroup]:
        """The groups."""
        return [one.group for one in self._ones]

    def poke(self) -> list[Report]:
        """Ask for all at once; if the call raises, halve it until the bad context stands alone."""
        return self._ask(self._ones)

    def overran(self, limit: float) -> list[Report]:
        """Say that all of them overran."""
        return [overran(one.group, self.began, limit) for one in self._ones]

    def rest(self) -> Iterable[One]:
        """They are all asked for in one call."""
        return ()

    def _ask(self, ones: Sequence[One]) -> list[Report]:
        groups, began, read = [one.group for one in ones], _monotonic(), self._means.answers
        try:
            found = self._means.classes.find(ones[0].op_classpath)
            answers: list[Any] = list(found.cls.poke_many([one.context(found) for one in ones]))
        except BaseException as error:
            if len(ones) == 1 or read.is_infra_failure(error):
                return [read.of_exception(group, began, error) for group in groups]
            middle = len(ones) // 2
            return self._ask(ones[:middle]) + self._ask(ones[middle:])
        if len(answers) != len(ones):
            wrong = ValueError(f"{found.op_classpath}.poke_many gave {len(answers)} answers to {len(ones)} contexts")
            return [read.of_exception(group, began, wrong) for group in groups]
        took = _monotonic() - began
        return [
            Report(group, began, _NOT_LANDED, None, None, took)
            if value is False
            else read.of_exception(group, began, value)
            if isinstance(value, BaseException)
            else read.of_value(group, began, value)
            for group, value in zip(groups, answers, strict=True)
        ]
