"""One call of ``poke_many`` for many contexts of a class."""

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import isawaitable
from typing import Any, Protocol

from sensorpool.model.not_landed import Seen, not_landed
from sensorpool.model.values import DueGroup
from sensorpool.poke.answer import close
from sensorpool.poke.classes import SensorClass
from sensorpool.poke.copies import end_copy
from sensorpool.poke.throttling import quiet_for
from sensorpool.poke.tools import PokeTools, awaited, overran

SIZE = 500  # contexts in one call of poke_many

_monotonic = time.monotonic


class Asked(Protocol):
    """What a bulk call asks for: a group and its context."""

    group: DueGroup
    op_classpath: str

    def context(self, found: SensorClass) -> Any:
        """Return what the class is asked with: a fresh object for each call, which may change it."""


class BulkCall:
    """Groups of one class that answers many contexts in one call."""

    size = 1  # call, which waits for one answer

    __slots__ = ("_answered", "_away", "_begun", "_most_away", "_tools", "_units", "began", "op_classpath")

    def __init__(self, units: Sequence[Asked], tools: PokeTools) -> None:
        # why the backend is away for the rest of this poke, and when the call began that found it so
        self._away: tuple[BaseException, float] | None = None
        self._begun = [unit.group for unit in units]  # the groups as they were when the poke began
        # what was seen so far, each with the place after its groups, which come in their order
        self._answered: list[tuple[int, list[Seen]]] = []
        self._most_away = 0  # how many more calls may fail in a row before the backend counts as away
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
        self._away, self._most_away = None, len(self._units).bit_length() + 1
        self._begun, self._answered = [unit.group for unit in self._units], []
        try:
            self._ask(0, len(self._units))
        finally:
            self._away = None  # the objects in its frames are destroyed here, under this poke's time limit
        return self._seen(self._answered)

    def overran(self, limit: float) -> list[Seen]:
        """Report what was seen, and that the groups without an answer overran their limit (seconds)."""
        begun, answered = self._begun, self._answered.copy()  # the call may go on meanwhile
        unanswered = begun[answered[-1][0] :] if answered else begun
        of_many = len(begun) > 1
        why = f", in one call with {len(begun) - 1} more" if of_many else ""
        late = [overran(group, self.began, limit, why=why) for group in unanswered]
        return [*self._seen(answered), *(report._replace(of_many=True) if of_many else report for report in late)]

    def rest(self) -> tuple[()]:
        """Return nothing: all groups are in the call that goes on."""
        return ()

    def seen(self) -> tuple[()]:
        """Return nothing: what was seen is reported as it ends."""
        return ()

    @staticmethod
    def _seen(answered: list[tuple[int, list[Seen]]]) -> list[Seen]:
        return [each for _, some in answered for each in some]

    def _ask(self, start: int, end: int) -> None:
        """Ask for the groups at these places, and keep what is seen."""
        seen = self._ask_once(start, end)
        if seen is not None:
            self._answered.append((end, seen))
            return
        middle = (start + end) // 2
        self._ask(start, middle)
        self._ask(middle, end)

    def _ask_once(self, start: int, end: int) -> list[Seen] | None:
        """Ask for the groups at these places in one call; return None if each half of them is to be asked for."""
        groups, units, read = self._begun[start:end], self._units[start:end], self._tools.answers
        if self._away is not None:  # they are not asked for: what is known of them is as old as that call
            error, began = self._away
            return [read.of_exception(group, began, error) for group in groups]
        began = _monotonic()
        try:
            sensor_class = self._tools.classes.find(units[0].op_classpath)
            returned = sensor_class.cls.poke_many([unit.context(sensor_class) for unit in units])
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
            if len(units) == 1 or self._away is not None or self._tools.classes.refusal(units[0].op_classpath):
                return [read.of_exception(group, began, error) for group in groups]
            return None
        end_copy()
        self._most_away = len(self._units).bit_length() + 1
        if answers is None or len(answers) != len(units):
            gave = f"a {type(returned).__name__}" if answers is None else f"{len(answers)} answers"
            asked = f"{sensor_class.op_classpath}.poke_many gave {gave} to {len(units)} contexts"
            for value in answers or ():
                close(value)
            wrong = ValueError(f"{asked}: give a list with one answer for each, in their order")
            return [read.of_exception(group, began, wrong) for group in groups]
        took = _monotonic() - began
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
