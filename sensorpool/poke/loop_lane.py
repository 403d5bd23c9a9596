"""The lane of coroutines: one event loop on a thread of its own, kept from job to job (clients belong to their loop).

A coroutine that overruns is cancelled. A coroutine that blocks the loop cannot be cancelled: then the loop is given up
with its thread, the blocker is reported, and all other pokes move to a new loop. A poke that stops the loop, or cancels
tasks, affects no other poke (`sharing`).
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Iterable

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import Report
from sensorpool.poke.disposal import dispose
from sensorpool.poke.holding import look
from sensorpool.poke.lane import Lane
from sensorpool.poke.poke_loop import GRACE, PokeLoop, SteppedCoroutine
from sensorpool.poke.queues import drained
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.rounds import LONG
from sensorpool.poke.sharing import CURRENT_POKE, PokeTask, RunningPoke
from sensorpool.poke.slots import Slots
from sensorpool.poke.tools import overran
from sensorpool.poke.unit import PokeUnit

_LOOK_EVERY = 0.02  # seconds between two looks at a loop: each wakes it
_MOST_MOVES = 3  # of a poke in a row, from loops that code of no running poke holds

log = logger(__name__)


class LoopLane(Lane[PokeUnit]):
    """Pokes by coroutines. Their blocking calls (`asyncio.to_thread`) run on the lane's threads."""

    def __init__(self, slots: Slots, poke_timeout: float, reusable: ReusableThreads | None = None) -> None:
        super().__init__(slots, poke_timeout, reusable)
        self._loop: PokeLoop | None = None
        self._left: deque[tuple[float, RunningPoke]] = deque()  # when a poke ended before its threads, and the poke
        self._has_warned = False
        self._moves: dict[PokeUnit, int] = {}  # how often in a row a poke moved and none was to blame

    def put(self, units: Iterable[PokeUnit]) -> None:
        """Queue pokes."""
        self._waiting.put(units)
        self._wake()

    def withdraw(self) -> list[PokeUnit]:
        """Take back the pokes that have not begun."""
        units = super().withdraw()
        for unit in units:
            self._moves.pop(unit, None)
        return units

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

    def is_held_up(self, seconds: float) -> bool:
        """Whether every poke that goes on has been going on for so long."""
        now, loop = time.monotonic(), self._loop
        return loop is None or all(now - poke.began > seconds for poke in list(loop.running.values()))

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
        number, now = 0, time.monotonic()
        for left in drained(self._left):
            at, going = left
            if going.busy:
                self._left.append(left)
                number += going.busy if now - at > GRACE else 0
        return number

    def supervise(self) -> None:
        """Give up the pokes that overran: a coroutine that does not end when cancelled, or a loop that is blocked."""
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
        if loop.is_dead:
            self._give_up(loop)
            return
        holder, now, stepping = look(loop), time.monotonic(), loop.stepping
        if stepping is not None and now - stepping[1] > self._poke_timeout:
            self._give_up(loop, stepping[0], holder and holder.name, stepping)
            return
        if loop.left_behind and any(going.left > self._poke_timeout for going in list(loop.running.values())):
            self._give_up(loop, None, loop.left_behind)
            return
        if loop.answered_at >= loop.asked_at:
            loop.asked_at = now
            loop.tell(loop.answer)
            held = loop.rounds.lasts()
            for unit, going in list(loop.running.items()):  # on a blocked loop they are not to blame
                if now - held - going.ends > GRACE:
                    self._report(loop, unit, [_overran(unit, going)])
        elif now - loop.asked_at > self._poke_timeout + GRACE:
            self._give_up(loop, holder and _unit_of(holder.going, loop), holder and holder.name)

    def close(self) -> None:
        """Stop the loop. An idle loop has ended when this returns; pokes that go on are cancelled without a wait."""
        loop, self._loop = self._loop, None
        if loop is not None:
            is_idle = not loop.running
            loop.end()
            if is_idle:
                loop.join(GRACE)

    def _give_up(
        self,
        loop: PokeLoop,
        blocker: PokeUnit | None = None,
        code: str | None = None,
        stepping: tuple[PokeUnit, float] | None = None,
    ) -> None:
        """Leave a loop that is held. The poke that holds it overran, and the rest move.

        Where code that a poke left behind holds it, all move, for none is to blame; one that has moved so `_MOST_MOVES`
        times in a row counts as overran.

        :param blocker: the poke that holds the loop; it may be reported already, and hold the loop while it is being
            cancelled.
        :param code: the name of the code that holds the loop, if it is known.
        :param stepping: the blocker's present step.
        """
        with loop.lock:
            if stepping is not None and loop.stepping is not stepping:
                return  # the loop has just gone on
            loop.given_up = True
            running = dict(loop.running)
            loop.running.clear()
            for going in running.values():
                self._leave(going)
        if blocker in running:
            over = {blocker: _overran(blocker, running[blocker])}
        else:
            if code is not None:
                log.warning("code that a poke left behind holds the event loop; its pokes begin again", code=code)
            over = self._moved_too_often(running, code)
        for unit in running:
            self._slots.release(unit.op_classpath)
        for unit in over:
            self._moves.pop(unit, None)
        self.abandoned += 1
        loop.end()
        dispose(loop)  # with the tasks that are left on it
        self._done.extend([report] for report in over.values())
        self._loop = None
        self._waiting.put([unit for unit in running if unit not in over])
        if self._waiting:
            self._wake()

    def _moved_too_often(self, running: dict[PokeUnit, RunningPoke], code: str | None) -> dict[PokeUnit, Report]:
        """Count that pokes move and none is to blame; return the reports of those that have moved often enough."""
        now, over = time.monotonic(), {}
        by = "" if code is None else f": {code}, which a poke left behind, held its own"
        for unit, going in running.items():
            moves = self._moves.get(unit, 0)
            self._moves[unit] = moves + 1
            if moves >= _MOST_MOVES and now - going.began > going.limit:
                why = f", after it moved {moves} times to another event loop{by}"
                over[unit] = overran(unit.begun, going.began, going.limit, going.more, why)
        return over

    def _start(self, loop: PokeLoop) -> None:
        """Begin as many pokes as may run at once. Runs on the loop."""
        while True:
            with loop.lock:  # `_give_up` must find each poke either waiting or running
                unit = None if loop.given_up else self._waiting.take()
                if unit is None:
                    return
                going = loop.running[unit] = RunningPoke(time.monotonic(), self._poke_timeout)
                unit.begun = unit.group
            loop.limit(going)
            own = contextvars.Context()
            own.run(CURRENT_POKE.set, going)
            coroutine = SteppedCoroutine(self._poke(loop, unit, going), unit, going, loop)
            task: PokeTask[None] = PokeTask(coroutine, loop=loop.loop, context=own)
            task.going = going

    async def _poke(self, loop: PokeLoop, unit: PokeUnit, going: RunningPoke) -> None:
        if loop.running.get(unit) is not going:
            return  # it is reported, or has moved: a loop that was given up goes on again
        going.task = asyncio.current_task()
        try:
            reports = await unit.poke_async(loop.name)
        except asyncio.CancelledError as error:  # the poke itself raised it, unless its time was over
            if loop.is_ending:
                return  # `_give_up` has reported it
            reports = [unit.failed(going.began, error)]
        if going.has_ended:  # whatever the poke did when it was cancelled
            reports = [_overran(unit, going)]
        self._report(loop, unit, reports)
        self._start(loop)

    def _report(self, loop: PokeLoop, unit: PokeUnit, reports: list[Report]) -> None:
        """Report a poke if it is among the running ones: so it is reported once."""
        with loop.lock:
            if (going := loop.running.pop(unit, None)) is None:
                return
            self._leave(going)
            self._moves.pop(unit, None)
            self._done.append(reports)
        self._slots.release(unit.op_classpath)

    def _leave(self, going: RunningPoke) -> None:
        """Note that a poke is over, and keep it if its threads are still busy."""
        going.is_over, going.task = True, None
        if going.threads is not None and going.busy:
            self._left.append((time.monotonic(), going))


def _overran(unit: PokeUnit, going: RunningPoke) -> Report:
    why = f", while other code held its event loop for {going.more:.3g} s" if going.more > LONG else ""
    return overran(unit.begun, going.began, going.limit, going.more, why)


def _unit_of(going: RunningPoke | None, loop: PokeLoop) -> PokeUnit | None:
    return next((unit for unit, each in list(loop.running.items()) if each is going), None)
