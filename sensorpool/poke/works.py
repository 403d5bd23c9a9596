"""What the lane of threads pokes: one group, or many contexts of one class in one call."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sensorpool.model import DueGroup
from sensorpool.poke.answer import Answers, Report
from sensorpool.poke.cache import Kept
from sensorpool.poke.classes import Classes, Way
from sensorpool.states import Outcome

MANY = 500  # contexts in one call of poke_many


def overran(group: DueGroup, began: float, limit: float) -> Report:
    """Report a poke that overran its limit (seconds): what it would have seen is not known."""
    reason = f"the poke took longer than its limit of {limit:g} s"
    return Report(group, began, Outcome.POKE_TIMEOUT, reason, None, limit)


class One:
    """One group."""

    __slots__ = ("_answers", "_classes", "group", "kept")

    def __init__(self, group: DueGroup, kept: Kept, classes: Classes, answers: Answers) -> None:
        self.group = group
        self.kept = kept
        self._classes = classes
        self._answers = answers

    @property
    def groups(self) -> list[DueGroup]:
        """The group."""
        return [self.group]

    def poke(self) -> list[Report]:
        """Poke it."""
        began = time.monotonic()
        try:
            found = self.kept.prepare(self._classes)
            if found.way is Way.MANY:
                return Many([(self.group, self.kept)], self._classes, self._answers).poke()
            value = self.kept.poke({})
        except BaseException as error:
            return [self._answers.of_exception(self.group, began, error)]
        return [self._answers.of_value(self.group, began, value)]

    async def poke_async(self, home: int) -> list[Report]:
        """Poke it on the running event loop, which is called ``home``."""
        began = time.monotonic()
        try:
            self.kept.prepare(self._classes, home)
            value = await self.kept.poke({})
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return [self._answers.of_exception(self.group, began, error)]
        return [self._answers.of_value(self.group, began, value)]

    def overran(self, began: float, limit: float) -> list[Report]:
        """Say that it overran."""
        return [overran(self.group, began, limit)]


class Many:
    """Groups of one class that answers many contexts in one call."""

    __slots__ = ("_answers", "_classes", "_items")

    def __init__(self, items: Sequence[tuple[DueGroup, Kept]], classes: Classes, answers: Answers) -> None:
        self._items = items
        self._classes = classes
        self._answers = answers

    @property
    def groups(self) -> list[DueGroup]:
        """The groups."""
        return [group for group, _ in self._items]

    def poke(self) -> list[Report]:
        """Ask for all at once; if the call raises, halve it until the bad context stands alone."""
        return self._ask(self._items)

    def overran(self, began: float, limit: float) -> list[Report]:
        """Say that all of them overran."""
        return [overran(group, began, limit) for group, _ in self._items]

    def _ask(self, items: Sequence[tuple[DueGroup, Kept]]) -> list[Report]:
        began = time.monotonic()
        try:
            found = items[0][1].prepare(self._classes)
            for _, kept in items[1:]:
                kept.prepare(self._classes)
            answers: list[Any] = list(found.cls.poke_many([kept.poke for _, kept in items]))
        except BaseException as error:
            if len(items) == 1 or self._answers.is_infra_failure(error):
                return [self._answers.of_exception(group, began, error) for group, _ in items]
            middle = len(items) // 2
            return self._ask(items[:middle]) + self._ask(items[middle:])
        if len(answers) != len(items):
            wrong = ValueError(f"{found.op_classpath}.poke_many gave {len(answers)} answers to {len(items)} contexts")
            return [self._answers.of_exception(group, began, wrong) for group, _ in items]
        return [
            self._answers.of_exception(group, began, value)
            if isinstance(value, BaseException)
            else self._answers.of_value(group, began, value)
            for (group, _), value in zip(items, answers, strict=True)
        ]
