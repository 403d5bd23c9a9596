"""The unit that a lane pokes: one group with its sensor, by itself, in a `QuickBatch`, or in a `BulkCall`."""

import asyncio
import json
import time
from collections.abc import Callable
from inspect import isawaitable
from sys import intern
from types import MethodType
from typing import Any

from sensorpool.errors import ClassUnavailable
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.not_landed import each_report
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds, Report
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.classes import SensorClass, Way
from sensorpool.poke.lane import Work
from sensorpool.poke.sensor_finalizer import finalize
from sensorpool.poke.tools import PokeTools, awaited, overran

_NOT_LANDED = Outcome.NOT_LANDED
# a constructor that ends so fails in this process only: it took the context at registration
_OF_THIS_PROCESS = frozenset({Outcome.POKE_ERROR, Outcome.EXITED, Outcome.CANNOT_POKE})
_monotonic = time.monotonic

log = logger(__name__)


def _read(text: str) -> dict[str, Any]:
    """Read a context.

    :raises ValueError: when the text is no JSON.
    :raises TypeError: when it is no JSON object.
    """
    context = json.loads(text)
    if type(context) is not dict:
        raise TypeError("its poke_context is no JSON object")
    return context


class Renewable:
    """A sensor that keeps values between its pokes which may be out of date."""

    __slots__ = ()

    def renew(self) -> None:
        """Read fresh values at the next poke: another waiter has joined. Called from any thread."""
        raise NotImplementedError


class PokeUnit(Work):
    """One group and its sensor, which is constructed at its first poke, under that poke's time limit."""

    __slots__ = (
        "_context",
        "_home",
        "_poke",
        "_tools",
        "backend",
        "begun",
        "by_itself",
        "group",
        "question",
        "series",
    )

    def __init__(
        self, group: DueGroup, op_classpath: str, poke_context: str, tools: PokeTools, backend: str | None = None
    ) -> None:
        self.group = group
        self.op_classpath = op_classpath
        self.backend = intern(backend or op_classpath)  # groups by the thousand have one backend
        self.question: Any = None  # what it asks a shared call; False: it is poked by itself; None: not known
        self.series: tuple[int, Milliseconds | None] | None = None  # family and logical date; None: not looked up
        self.by_itself = False  # whether its next poke is its own, for a shared call did not say no to it
        self.began = 0.0
        self.begun = group  # as it was when its poke began: the poke does not speak for later waiters
        self._tools = tools
        self._poke: Any = None  # the sensor's `poke`, once the sensor is constructed
        self._home = 0  # the event loop on which it was constructed: clients belong to their loop
        self._context: Any = poke_context  # JSON text; None once the sensor is constructed

    def __del__(self, finalize: Callable[[object], None] = finalize) -> None:
        if self._poke is not None:
            finalize(self._poke)  # a job that drops the unit must not wait while the sensor is destroyed

    @property
    def groups(self) -> list[DueGroup]:
        """The group."""
        return [self.group]

    def poke(self) -> list[Report]:
        """Poke the group on this thread; return its report.

        A coroutine is awaited here, on a loop of its own. From its next poke on, the class of such a coroutine goes to
        the loop lane, where clients outlive one poke.
        """
        self.begun = group = self.group
        began = _monotonic()
        try:
            if self._poke is None:
                sensor_class = self._tools.classes.find(self.op_classpath)
                if sensor_class.way is Way.MANY:  # this group is poked apart from the others of its class
                    return each_report(BulkCall([self], self._tools).poke())
                self._construct(sensor_class)
            value = self._poke({})
            if value is False:
                self._tools.pace[self.op_classpath] = took = _monotonic() - began
                self._context = None  # the sensor is constructed: the text is not needed again
                return [Report(group, began, _NOT_LANDED, None, None, took)]
            if value is True or value is None or not isawaitable(value):
                self._context = None
            else:
                self._tools.classes.learn_async(self.op_classpath)
                value = awaited(value)
        except BaseException as error:
            return [self._tools.answers.of_exception(group, began, error)]
        return [self._tools.answers.of_value(group, began, value)]

    async def poke_async(self, home: int) -> list[Report]:
        """Poke the group on the running event loop, whose number is ``home``; return its report."""
        self.begun = group = self.group
        began = _monotonic()
        try:
            if self._poke is None or (self._home != home and self._context is not None):
                self._construct(self._tools.classes.find(self.op_classpath))
                self._home = home
            value = self._poke({})
            if isawaitable(value):  # a decorator may answer without a coroutine
                value = await value
        except asyncio.CancelledError:
            raise  # the lane knows who cancelled it
        except BaseException as error:
            return [self._tools.answers.of_exception(group, began, error)]
        return [self._tools.answers.of_value(group, began, value)]

    def may_share(self, sensor_class: SensorClass, now: Milliseconds = 0) -> bool:
        """Whether a shared call may be asked for the group, with its `question`.

        :param now: the database's time: after its deadline its poke is its own, for a call's answer would time it out.
        """
        if self.by_itself or ((deadline := self.group.next_deadline) is not None and now >= deadline):
            return False
        if self.question is None:
            self._note_question(sensor_class)
        return self.question is not False

    def _note_question(self, sensor_class: SensorClass) -> None:
        """Note what it asks a shared call: from the text of its context, which is not kept after its first poke."""
        self.question = False
        if sensor_class.shared is not None and isinstance(self._context, str):
            try:
                self.question = sensor_class.shared.question(json.loads(self._context)) or False
            except Exception:  # garbled, or not as the call expects it: the poke itself says what is wrong
                log.debug("a condition is poked by itself", op_classpath=self.op_classpath, exc_info=True)

    def failed(self, began: float, error: BaseException) -> Report:
        """Report the exception of its poke."""
        return self._tools.answers.of_exception(self.begun, began, error)

    def cancelled(self) -> Report:
        """Report that its task was cancelled; which poke has done that is not known."""
        why = "its task was cancelled on its event loop"
        return Report(self.begun, self.began, Outcome.POKE_TIMEOUT, why, of_many=True)

    def overran(self, limit: float) -> list[Report]:
        """Report that its poke overran the limit (seconds)."""
        return [overran(self.begun, self.began, limit)]

    def join(self, group: DueGroup) -> None:
        """Take the group as it is now: other instances wait for it, or they wait in another way."""
        has_changed, self.group = group.version != self.group.version, group
        if not has_changed or type(self._poke) is not MethodType:  # another callable may have odd attributes
            return
        sensor: Any = self._poke.__self__
        if issubclass(type(sensor), Renewable):
            try:
                sensor.renew()
            except BaseException:  # the load of a whole range calls this; it must go on
                log.exception("a sensor was not renewed", op_classpath=self.op_classpath, group_id=group.id)

    def _construct(self, sensor_class: SensorClass) -> None:
        if self.question is None and sensor_class.shared is not None:
            self._note_question(sensor_class)  # a later poke may be shared, though this one is not
        self._poke = self.made(sensor_class).poke

    def made(self, sensor_class: SensorClass) -> Any:
        """Construct the sensor; for a class with `poke_many`, return a fresh context, which one call may change.

        The context was tried out at registration, so a failure is this process's own.

        :raises ClassUnavailable: when it cannot be constructed here: the class is older, or a module is missing.
        :raises Exception: when the context is garbled, or the constructor raises a skip, a failure or the like.
        """
        context = _read(self._context)
        try:
            return sensor_class.construct(context)
        except (Exception, SystemExit) as error:
            if self._tools.answers.outcome_of(error) not in _OF_THIS_PROCESS:
                raise
            why = f"{self.op_classpath} cannot be constructed here: {one_line(error)}"
        self._tools.classes.note(self.op_classpath, why)
        raise ClassUnavailable(why)
