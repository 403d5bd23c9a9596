"""One call of ``poke_many`` for many contexts of a class."""

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import isawaitable
from typing import Any, Protocol

from sensorpool.model.not_landed import Seen, not_landed
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.answer import close
from sensorpool.poke.classes import SensorClass
from sensorpool.poke.fork_guard import end_copy
from sensorpool.poke.lane import Work
from sensorpool.poke.throttling import quiet_for
from sensorpool.poke.tools import PokeTools, awaited, overran

SIZE = 500  # contexts in one call of poke_many

_monotonic = time.monotonic


class Asked(Protocol):
    """What a bulk call asks for: a group and its context."""

    group: DueGroup
    op_classpath: str

    def made(self, sensor_class: SensorClass) -> Any:
        """Return what the class is asked with: a fresh object for each call, which may change it."""


class BulkCall(Work):
    """Groups of one class that answers many contexts in one call."""

    __slots__ = ("_away", "_begun", "_most_away", "_tools", "_units")

    def __init__(self, units: Sequence[Asked], tools: PokeTools) -> None:
        # why the backend is away for the rest of this poke, and when the call began that found it so
        self._away: tuple[BaseException, float] | None = None
        self._most_away = 0  # how many more calls may fail in a row before the backend counts as away
        self._begun = [unit.group for unit in units]  # the groups as they were when the poke began
        self.op_classpath = units[0].op_classpath
        self.began = 0.0
        self._units = units
        self._tools = tools

    @property
    def groups(self) -> list[DueGroup]:
        """The groups."""
        return [unit.group for unit in self._units]

    def poke(self) -> list[Seen]:
        """Ask for all groups in one call; if the call raises, halve it until the bad context stands alone.

        Where the backend of one context is away, the other contexts are asked. Where it is away for all of them, a few
        calls find that out.
        """
        self._away, self._most_away, self._begun = None, len(self._units).bit_length() + 1, self.groups
        try:
            return self._ask(0, len(self._units))
        finally:
            self._away = None  # the objects in its frames are destroyed here, under this poke's time limit

    def overran(self, limit: float) -> list[Report]:
        """Report that all groups overran their limit (seconds): which of them hangs is not known."""
        many = len(self._begun) - 1
        why = f", in one call with {many} more" if many else ""
        return [overran(group, self.began, limit, why)._replace(of_many=many > 0) for group in self._begun]

    def _ask(self, start: int, end: int) -> list[Seen]:
        """Ask for the groups at these places in one call, or, where that raises, for each half of them."""
        groups, units, read = self._begun[start:end], self._units[start:end], self._tools.answers
        if self._away is not None:  # they are not asked for: what is known of them is as old as that call
            error, began = self._away
            return [read.of_exception(group, began, error) for group in groups]
        began = _monotonic()
        try:
            sensor_class = self._tools.classes.find(self.op_classpath)
            returned = sensor_class.cls.poke_many([unit.made(sensor_class) for unit in units])
            if isawaitable(returned):
                returned = awaited(returned)
            answers: list[Any] | None = None if _gives_no_list(returned) else list(returned)
        except BaseException as error:
            end_copy()
            if quiet_for(error) is not None:
                self._away = error, began  # it wants to be asked less, and not once more for each half
            elif read.is_infra_failure(error):
                self._most_away -= 1
                self._away = None if self._most_away else (error, began)
            if len(units) == 1 or self._away is not None or self._tools.classes.refusal(self.op_classpath):
                return [read.of_exception(group, began, error) for group in groups]
        else:
            end_copy()
            self._most_away = len(self._units).bit_length() + 1
            if answers is not None and len(answers) == len(units):
                return self._read(groups, answers, began)
            gave = f"a {type(returned).__name__}" if answers is None else f"{len(answers)} answers"
            for value in answers or ():
                close(value)
            asked = f"{self.op_classpath}.poke_many gave {gave} to {len(units)} contexts"
            wrong = ValueError(f"{asked}: give a list with one answer for each, in their order")
            return [read.of_exception(group, began, wrong) for group in groups]
        middle = (start + end) // 2
        return [*self._ask(start, middle), *self._ask(middle, end)]

    def _read(self, groups: Sequence[DueGroup], answers: Sequence[Any], began: float) -> list[Seen]:
        took, read = _monotonic() - began, self._tools.answers
        found_nothing: list[DueGroup] = []
        seen: list[Seen] = []
        for group, value in zip(groups, answers, strict=True):
            if value is False:
                found_nothing.append(group)
            elif isinstance(value, BaseException):
                seen.append(read.of_exception(group, began, value))
            else:
                seen.append(read.of_value(group, began, value))
        if found_nothing:
            seen.append(not_landed(found_nothing, [began] * len(found_nothing), took))
        return seen


def _gives_no_list(returned: Any) -> bool:
    """Whether the value of `poke_many` is no list: iterating it gives keys, columns or letters, or has no order."""
    keyed = hasattr(type(returned), "keys") and not hasattr(type(returned), "tolist")
    return keyed or isinstance(returned, Mapping | AbstractSet | str | bytes)
