"""The lane of coroutines: one event loop on a thread of its own, kept from job to job (clients belong to their loop).

A coroutine that overruns is cancelled. One that blocks the loop cannot be: then the loop is given up with its thread,
the blocker is reported, and everybody else moves to a new loop.
"""

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Coroutine, Generator, Iterable
from typing import Any

from sensorpool.model import Report
from sensorpool.poke.slots import Slots, Waiting
from sensorpool.poke.threads import drained
from sensorpool.poke.works import One, overran

_GRACE = 1.0  # seconds that a cancelled coroutine has to end


async def _let_end(tasks: set[asyncio.Task[Any]]) -> None:
    """Give cancelled tasks a moment to end."""
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE)


_names = itertools.count(1)


class _Loop:
    """One event loop and who is on it."""

    def __init__(self, slots: Slots) -> None:
        self.name = next(_names)
        self.loop = asyncio.new_event_loop()
        self.waiting: Waiting[One] = Waiting(slots)
        self.running: dict[One, float] = {}  # began, by the monotonic clock
        self.stepping: tuple[One, float] | None = None  # who has the loop just now, and since when
        self.asked_at = self.answered_at = time.monotonic()  # whether it still turns
        self.given_up = False
        self.lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True, name="poke-loop").start()

    def answer(self) -> None:
        """Say that it turns. Runs on the loop."""
        self.answered_at = time.monotonic()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(_let_end(asyncio.all_tasks(self.loop)))
        self.loop.close()


class _Watched(Coroutine[Any, Any, None]):
    """A coroutine that says when it has the loop: only so can one that blocks it be told from those that wait."""

    def __init__(self, inner: Coroutine[Any, Any, None], one: One, loop: _Loop) -> None:
        self._inner = inner
        self._one = one
        self._loop = loop

    def send(self, value: Any) -> Any:
        self._loop.stepping = (self._one, time.monotonic())
        try:
            return self._inner.send(value)
        finally:
            self._loop.stepping = None

    def throw(self, *error: Any) -> Any:
        self._loop.stepping = (self._one, time.monotonic())
        try:
            return self._inner.throw(*error)
        finally:
            self._loop.stepping = None

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("it is run as a task")


class LoopLane:
    """Pokes by coroutines.

    :param slots: how many pokes at once; lanes may share them.
    :param poke_timeout: seconds.
    """

    def __init__(self, slots: Slots, poke_timeout: float) -> None:
        self.abandoned = 0  # loops that were given up
        self._slots = slots
        self._poke_timeout = poke_timeout
        self._done: deque[list[Report]] = deque()
        self._loop: _Loop | None = None

    def put(self, ones: Iterable[One]) -> None:
        """Queue pokes."""
        if self._loop is None:
            self._loop = _Loop(self._slots)
        self._loop.waiting.put(ones)
        self._loop.loop.call_soon_threadsafe(self._start, self._loop)

    @property
    def queued(self) -> int:
        """How many nobody has begun to poke yet."""
        return len(self._loop.waiting) if self._loop else 0

    @property
    def takeable(self) -> int:
        """How many of them could be begun now."""
        return self._loop.waiting.takeable if self._loop else 0

    def queued_of(self, op_classpath: str) -> int:
        """How many of a class nobody has begun to poke yet."""
        return self._loop.waiting.of_class(op_classpath) if self._loop else 0

    def slow(self, seconds: float) -> bool:
        """Whether all pokes that go on have been going on for so long."""
        now, loop = time.monotonic(), self._loop
        return loop is None or all(now - began > seconds for began in list(loop.running.values()))

    @property
    def idle(self) -> bool:
        """Whether everything was poked or given up."""
        return self._loop is None or not (self._loop.waiting or self._loop.running)

    def withdraw(self) -> list[One]:
        """Take back what nobody has begun to poke yet."""
        if self._loop is None:
            return []
        return self._loop.waiting.drain()

    def collect(self) -> list[list[Report]]:
        """Return what has been reported since the last call."""
        return drained(self._done)

    def supervise(self) -> None:
        """Give up who overran: a coroutine that does not end when cancelled, or the loop that one of them blocks."""
        loop = self._loop
        if loop is None:
            return
        now = time.monotonic()
        stepping = loop.stepping
        if stepping is not None and now - stepping[1] > self._poke_timeout:
            self._give_up(loop, now, stepping)
            return
        if loop.answered_at >= loop.asked_at:
            loop.asked_at = now
            loop.loop.call_soon_threadsafe(loop.answer)
        elif now - loop.asked_at > self._poke_timeout + _GRACE:
            self._give_up(loop, now)  # what blocks it is no poke, but something that a poke left behind
            return
        for one, began in list(loop.running.items()):
            if now - began > self._poke_timeout + _GRACE:
                self._report(loop, one, [overran(one.group, began, self._poke_timeout)])
        if loop.waiting.takeable:  # a slot came free, here or in a lane that shares them
            loop.loop.call_soon_threadsafe(self._start, loop)

    def close(self) -> None:
        """Stop the loop."""
        if self._loop is not None:
            self._loop.loop.call_soon_threadsafe(self._loop.loop.stop)
            self._loop = None

    def _give_up(self, loop: _Loop, now: float, stepping: tuple[One, float] | None = None) -> None:
        """Leave a blocked loop: who blocks it overran (if nobody is known, all who had their time); the others move.

        :param stepping: who blocks it, and since when; he may have been reported already, and block it as he leaves.
        """
        blocker = None if stepping is None else stepping[0]
        with loop.lock:
            if stepping is not None and loop.stepping is not stepping:
                return  # it goes on this moment
            loop.given_up = True
            limit = self._poke_timeout
            over = [
                (one, at)
                for one, at in loop.running.items()
                if one is blocker or (blocker is None and now - at > limit)
            ]
            left = {one for one, _ in over}
            running = list(loop.running)
            moving = [one for one in running if one not in left] + loop.waiting.drain()
            loop.running.clear()
        for one in running:
            self._slots.release(one.op_classpath)
        self.abandoned += 1
        loop.loop.call_soon_threadsafe(loop.loop.stop)  # should it ever come back
        self._done.extend([overran(one.group, at, limit)] for one, at in over)
        self._loop = None
        if moving:
            self.put(moving)

    def _start(self, loop: _Loop) -> None:
        """Begin as many pokes as may run at once. Runs on the loop."""
        while True:
            with loop.lock:  # or one that is neither waiting nor running is lost to whoever gives the loop up
                one = None if loop.given_up else loop.waiting.take()
                if one is None:
                    return
                loop.running[one] = time.monotonic()
            loop.loop.create_task(_Watched(self._poke(loop, one), one, loop))

    async def _poke(self, loop: _Loop, one: One) -> None:
        if loop.given_up:
            return  # it came back, and everybody has moved
        began = loop.running.get(one, time.monotonic())
        try:
            async with asyncio.timeout(self._poke_timeout) as limit:
                reports = await one.poke_async(loop.name)
        except TimeoutError:
            pass
        if limit.expired():  # whatever it made of being cancelled
            reports = [overran(one.group, began, self._poke_timeout)]
        self._report(loop, one, reports)
        self._start(loop)

    def _report(self, loop: _Loop, one: One, reports: list[Report]) -> None:
        """Report once: whoever finds the poke among the running ones speaks for it."""
        with loop.lock:
            if loop.running.pop(one, None) is None:
                return
            self._done.append(reports)
        self._slots.release(one.op_classpath)
