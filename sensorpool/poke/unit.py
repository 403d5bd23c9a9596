"""What a lane pokes: one group with its sensor, by itself, in a `QuickBatch`, or in a `BulkCall`."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from inspect import isawaitable
from types import MethodType
from typing import Any

from sensorpool.errors import ClassUnavailable
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.answer import CANNOT
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.classes import RETRY_AFTER, SensorClass, Way
from sensorpool.poke.disposal import dispose
from sensorpool.poke.tools import PokeTools, awaited, overran

_LONGEST_PUT_OFF = 300.0  # seconds

_NOT_LANDED = Outcome.NOT_LANDED
_OF_THIS_PROCESS = frozenset({Outcome.POKE_ERROR, Outcome.EXITED, Outcome.CANNOT_POKE})  # what a constructor raised
_OF_THE_POOL = re.compile("^(ClassUnavailable|CannotPoke|SettingsError): ")  # names that say no more than the text
_monotonic = time.monotonic

log = logger(__name__)


class Renewable:
    """A sensor that keeps what may be out of date."""

    __slots__ = ()

    def renew(self) -> None:
        """Have a fresh look with the next poke: another waiter has joined. Called from any thread."""
        raise NotImplementedError


class PokeUnit:
    """One group and its sensor, which is constructed at its first poke, under that poke's time limit."""

    __slots__ = ("_context", "_home", "_poke", "_put_off", "_tools", "began", "group", "op_classpath")

    def __init__(self, group: DueGroup, op_classpath: str, poke_context: str, tools: PokeTools) -> None:
        self.group = group
        self.op_classpath = op_classpath
        self.began = 0.0
        self._tools = tools
        self._poke: Any = None  # that of the sensor, once it is constructed
        self._home = 0  # the event loop that it was constructed on, for clients belong to their loop
        self._context: Any = poke_context  # JSON text until it is read
        self._put_off: tuple[float, float, str] | None = None  # until when, for how long, and why

    def __del__(self, dispose: Callable[[object], None] = dispose) -> None:
        if self._poke is not None:
            dispose(self._poke)  # whoever lets go of us, a job say, must not wait for what the sensor does at its end

    @property
    def groups(self) -> list[DueGroup]:
        """The group."""
        return [self.group]

    def poke(self) -> list[Report]:
        """Poke it."""
        group, began = self.group, _monotonic()  # as it is now: whoever joins while we poke was not asked for
        try:
            if self._poke is None:
                found = self._tools.classes.find(self.op_classpath)
                if found.way is Way.MANY:  # it is poked apart from the others of its class
                    return BulkCall([self], self._tools).poke()
                self._construct(found)
            value = self._poke({})
        except BaseException as error:
            return [self._tools.answers.of_exception(group, began, error)]
        if value is False:
            self._tools.pace[self.op_classpath] = took = _monotonic() - began
            self._context = None  # it is constructed, and need not be again
            return [Report(group, began, _NOT_LANDED, None, None, took)]
        return [self.read(group, began, value)]

    def read(self, group: DueGroup, began: float, value: Any) -> Report:
        """Read what a poke on a thread returned. A coroutine is awaited here, on a loop of its own.

        Its class goes to the event loop from its next poke on, where clients live for longer than one poke.
        """
        try:
            if value is True or value is None or not isawaitable(value):
                self._context = None
            else:
                self._tools.classes.learn_async(self.op_classpath)
                value = awaited(value)
        except BaseException as error:
            return self._tools.answers.of_exception(group, began, error)
        return self._tools.answers.of_value(group, began, value)

    async def poke_async(self, home: int) -> list[Report]:
        """Poke it on the running event loop, which is called ``home``."""
        group, began = self.group, _monotonic()
        try:
            if self._poke is None or (self._home != home and self._context is not None):
                self._construct(self._tools.classes.find(self.op_classpath))
                self._home = home
            value = self._poke({})
            if isawaitable(value):  # a decorator may answer by itself
                value = await value
        except asyncio.CancelledError:
            raise  # who called knows whose doing it is
        except BaseException as error:
            return [self._tools.answers.of_exception(group, began, error)]
        return [self._tools.answers.of_value(group, began, value)]

    def context(self, found: SensorClass) -> Any:
        """Return what a class that answers many is asked with.

        :raises Exception: when the context cannot be read.
        """
        if isinstance(self._context, str):
            self._context = self._made(found)
        return self._context

    def failed(self, began: float, error: BaseException) -> Report:
        """Say what its poke raised."""
        return self._tools.answers.of_exception(self.group, began, error)

    def why_not(self) -> str | None:
        """Return why this process cannot poke it; None if it may, or it is time to try it again."""
        if self._put_off is not None and _monotonic() < self._put_off[0]:
            return self._put_off[2]
        return self._tools.classes.refusal(self.op_classpath)

    def put_off(self, why: str) -> None:
        """Note that this process could not poke it: neither is it made again, nor looked for, for a while."""
        why = _OF_THE_POOL.sub("", why.partition(CANNOT)[2]) or why
        now, before = _monotonic(), self._put_off
        again = before is not None and now < before[0] + 2 * before[1]
        wait = min(2 * before[1], _LONGEST_PUT_OFF) if before is not None and again else RETRY_AFTER
        self._put_off = (now + wait, wait, why)

    def overran(self, limit: float) -> list[Report]:
        """Say that it overran."""
        return [overran(self.group, self.began, limit)]

    def join(self, group: DueGroup) -> None:
        """Take the group as it is now: others wait for it, or wait otherwise."""
        has_changed, self.group = group.version != self.group.version, group
        if not has_changed or type(self._poke) is not MethodType:  # what is none may have odd attributes
            return
        sensor: Any = self._poke.__self__
        if issubclass(type(sensor), Renewable):
            try:
                sensor.renew()
            except BaseException:  # it is the load of a whole range that calls us
                log.exception("a sensor was not renewed", op_classpath=self.op_classpath, group_id=group.id)

    def rest(self) -> Iterable["PokeUnit"]:
        """There is nothing behind it."""
        return ()

    def _construct(self, found: SensorClass) -> None:
        self._poke = self._made(found).poke
        self._put_off = None

    def _made(self, found: SensorClass) -> Any:
        """Construct it. Its context was tried out where it was registered: it is this process that cannot.

        :raises ClassUnavailable: when it cannot be constructed here: by an older class, say, or without a module.
        :raises Exception: when its context is garbled, or its constructor says what that means.
        """
        if self._put_off is not None and _monotonic() < self._put_off[0]:
            raise ClassUnavailable(self._put_off[2])
        context = json.loads(self._context)
        if not isinstance(context, Mapping):
            raise TypeError("its poke_context is no JSON object")
        try:
            return found.construct(context)
        except (Exception, SystemExit) as error:
            if self._tools.answers.outcome_of(error) not in _OF_THIS_PROCESS:
                raise
            why = f"{self.op_classpath} cannot be constructed here: {one_line(error)}"
        self.put_off(why)
        self._tools.classes.note(self.op_classpath, why)
        raise ClassUnavailable(why)
