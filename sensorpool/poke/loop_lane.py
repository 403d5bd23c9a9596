"""The lane of coroutines: one event loop on a thread of its own, kept from job to job (clients belong to their loop).

A coroutine that overruns is cancelled. A coroutine that blocks the loop cannot be cancelled: then the loop is given up
with its thread, the blocker is reported, and all other pokes move to a new loop. A poke that stops the loop affects no
other poke. Pokes that another one cancels are poked again, each in a child process.
"""

import asyncio
import time
from collections.abc import Iterable

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import Report
from sensorpool.poke.lane import Lane
from sensorpool.poke.poke_loop import GRACE, PokeLoop, RunningPoke
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.sensor_finalizer import finalize
from sensorpool.poke.slots import Slots
from sensorpool.poke.unit import PokeUnit

_LOOK_EVERY = 0.02  # seconds between two looks at a loop: each wakes it

log = logger(__name__)


class LoopLane(Lane[PokeUnit]):
    """Pokes by coroutines. Their blocking calls (`asyncio.to_thread`) run on the lane's threads."""

    def __init__(self, slots: Slots, poke_timeout: float, reusable: ReusableThreads | None = None) -> None:
        super().__init__(slots, poke_timeout, reusable)
        self._loop: PokeLoop | None = None
        self._left: set[RunningPoke] = set()  # pokes that are over, whose threads go on
        self._has_warned = False

    def put(self, units: Iterable[PokeUnit]) -> None:
        """Queue pokes."""
        self._waiting.put(units)
        self._wake()

    def _wake(self) -> None:
        """Have the loop, or a new one, begin the waiting pokes."""
        if self._loop is None:
            try:
                self._loop = PokeLoop(self._reusable)
            except (OSError, RuntimeError, MemoryError) as error:  # `supervise` tries again
                if not self._has_warned:
                    self._has_warned = True
                    log.error("no event loop can be made; its pokes wait for one", error=one_line(error))
                return
            self._has_warned = False
        self._loop.tell(self._start, self._loop)

    @property
    def idle(self) -> bool:
        """Whether no poke waits or goes on."""
        if (loop := self._loop) is None:
            return not self._waiting
        with loop.lock:  # a poke that begins is neither waiting nor running for a moment
            return not self._waiting and not loop.running

    @property
    def hanging(self) -> int:
        """How many threads still run the blocking calls of pokes that have ended."""
        soon = time.monotonic() - GRACE
        for going in list(self._left):
            if not going.busy:
                self._left.discard(going)
        return sum(going.busy for going in list(self._left) if going.over_at is not None and going.over_at < soon)

    def supervise(self) -> None:
        """Give up a coroutine that does not end when it is cancelled, and a loop that is blocked."""
        loop = self._loop
        if loop is None:
            if self._waiting:
                self._wake()
            return
        if self._waiting.takeable:  # a slot came free, in this lane or in one that shares the slots
            self._wake()
        if (now := time.monotonic()) - loop.looked_at < _LOOK_EVERY:
            return
        loop.looked_at = now
        if loop.answered_at >= loop.asked_at and not loop.is_dead:
            loop.asked_at = now
            loop.tell(loop.answer)
            for unit in list(loop.running):
                if now - unit.began > self._poke_timeout + GRACE:
                    self._report(loop, unit, unit.overran(self._poke_timeout))
        elif now - loop.asked_at > self._poke_timeout or loop.is_dead:
            self._give_up(loop)

    def close(self) -> None:
        """Stop the loop. An idle loop has ended when this returns; pokes that go on are cancelled without a wait."""
        loop, self._loop = self._loop, None
        if loop is not None:
            is_idle = not loop.running
            loop.end()
            if is_idle:
                loop.join(GRACE)

    def _give_up(self, loop: PokeLoop) -> None:
        """Leave a loop that is blocked. The poke that holds it overran; the others begin again on another loop.

        If the task of no poke holds it (a callback does, or another task), any of them may be to blame: all of them
        overran, and each is poked in a child process.
        """
        holder = loop.holder
        with loop.lock:
            loop.given_up = True
            running = dict(loop.running)
            loop.running.clear()
            for going in running.values():
                self._leave(going)
        limit, many = self._poke_timeout, len(running) > 1
        over = {unit: unit.overran(limit) for unit, going in running.items() if going.task is holder}
        if not over or holder is None:
            over = {unit: [each._replace(of_many=many) for each in unit.overran(limit)] for unit in running}
        log.warning("an event loop is blocked; its pokes move to another", pokes=len(running))
        for unit in running:
            self._slots.release(unit.op_classpath)
        self.abandoned += 1
        loop.end()
        finalize(loop)  # with the tasks that are left on it
        self._done.extend(over.values())
        self._loop = None
        self._waiting.put([unit for unit in running if unit not in over])
        if self._waiting:
            self._wake()

    def _start(self, loop: PokeLoop) -> None:
        """Begin as many pokes as may run at once. Runs on the loop."""
        while True:
            with loop.lock:  # `_give_up` must find each poke either waiting or running
                unit = None if loop.given_up else self._waiting.take()
                if unit is None:
                    return
                going = loop.running[unit] = RunningPoke()
                unit.begun, unit.began = unit.group, time.monotonic()
            loop.begin(going, self._poke(loop, unit, going))

    async def _poke(self, loop: PokeLoop, unit: PokeUnit, going: RunningPoke) -> None:
        if loop.running.get(unit) is not going:
            return  # it has moved: a loop that was given up goes on again
        unit.began = time.monotonic()
        limit = asyncio.timeout(self._poke_timeout)
        try:
            async with limit:
                reports = await unit.poke_async(loop.name)
        except (asyncio.CancelledError, TimeoutError) as error:
            if loop.is_ending:
                return  # `_give_up` has reported it
            if going.task is not None and going.task.cancelling() and not limit.expired():  # by another poke
                reports = [unit.cancelled()]
            else:
                reports = [unit.failed(unit.began, error)]  # the poke itself raised it, unless its time was over
        if limit.expired():  # whatever the poke did when it was cancelled
            reports = unit.overran(self._poke_timeout)
        self._report(loop, unit, reports)
        self._start(loop)

    def _report(self, loop: PokeLoop, unit: PokeUnit, reports: list[Report]) -> None:
        """Report a poke if it is among the running ones: so it is reported once."""
        with loop.lock:
            if (going := loop.running.pop(unit, None)) is None:
                return
            self._leave(going)
            self._done.append(reports)
        self._slots.release(unit.op_classpath)

    def _leave(self, going: RunningPoke) -> None:
        """Note that a poke is over, and keep it if its threads are still busy."""
        going.over_at = time.monotonic()
        if going.busy:
            self._left.add(going)
