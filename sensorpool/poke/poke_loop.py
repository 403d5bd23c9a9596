"""An event loop that pokes share, on a thread of its own, and which poke runs on it at the moment."""

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, suppress
from contextvars import Context
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.copies import FORKED, end_copy
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.rounds import LONG, Rounds
from sensorpool.poke.sharing import RunningPoke, share
from sensorpool.poke.unit import PokeUnit

GRACE = 1.0  # seconds that a cancelled coroutine has to end
_TURN = 0.01  # seconds that a poke whose time is over has for its first turn

log = logger(__name__)


async def _let_end(tasks: set[asyncio.Task[Any]]) -> None:
    """Give cancelled tasks a moment to end."""
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)


_names = itertools.count(1)


class PokeLoop:
    """One event loop and its pokes.

    :raises OSError: when no event loop can be made.
    :raises RuntimeError: when no thread can be started.
    """

    def __init__(self, reusable: ReusableThreads) -> None:
        self.name = next(_names)
        self.running: dict[PokeUnit, RunningPoke] = {}
        self.rounds = Rounds(self.running)
        try:
            self.loop = asyncio.SelectorEventLoop(self.rounds)
        except BaseException:
            self.rounds.close()
            raise
        share(self.loop, reusable)
        self.left_behind: str | None = None  # the name of the code that held the loop last, of what pokes left behind
        self.stepping: tuple[PokeUnit, float] | None = None  # the poke that has the loop just now, and since when
        self.asked_at = self.answered_at = time.monotonic()  # of the last check whether the loop still turns
        self.looked_at = 0.0  # when `LoopLane.supervise` last looked at it
        self._ender: asyncio.TimerHandle | None = None  # ends the pokes whose time is over
        self.given_up = False  # its pokes have moved to another loop
        self.lock = threading.Lock()
        self.is_ending = False  # `_end_tasks` is cancelling all tasks
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="poke-loop")
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise

    @property
    def is_dead(self) -> bool:
        """Whether the loop will never turn again."""
        return not self._thread.is_alive()

    @property
    def thread_id(self) -> int:
        """The number of its thread; 0 before it runs."""
        return self._thread.ident or 0

    def tell(self, what: Callable[..., None], *given: Any) -> None:
        """Have a function called on the loop; a dead loop calls nothing, and `LoopLane.supervise` finds it."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what, *given)

    def answer(self) -> None:
        """Note that the loop turns. Runs on the loop."""
        self.answered_at = time.monotonic()

    def limit(self, going: RunningPoke) -> None:
        """Have a poke that begins end when its time is over. One timer is for all of them. Runs on the loop."""
        if self._ender is not None and self._ender.when() > going.ends:  # the others have more time, for they were held
            self._ender.cancel()
            self._ender = None
        if self._ender is None:
            # a context of its own, for what a timer does is taken for the work of the poke in its context
            self._ender = self.loop.call_at(going.ends, self._end_pokes, context=Context())

    def _end_pokes(self) -> None:
        self._ender = None
        now, later = time.monotonic(), math.inf
        for going in list(self.running.values()):
            if going.has_ended:
                continue
            if going.ends <= now and going.task is not None:
                try:
                    going.end()
                except Exception as error:  # what it waits for cannot be cancelled: `LoopLane.supervise` reports it
                    log.warning("a poke whose time is over cannot be cancelled", error=one_line(error))
            else:
                later = min(later, max(going.ends, now + _TURN))
        if later != math.inf:
            self._ender = self.loop.call_at(later, self._end_pokes, context=Context())

    def end(self) -> None:
        """Have the loop end; a blocked one ends if it ever goes on."""
        self._ends = True
        self.tell(self.loop.stop)

    def join(self, seconds: float) -> None:
        """Wait at most so many seconds for its thread to end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ends:
            try:
                self.loop.run_forever()  # again and again: a poke that stops the loop must stop no other poke
            except (SystemExit, KeyboardInterrupt) as error:
                log.warning("a task that a poke left raised on its event loop; the loop goes on", error=one_line(error))
            except BaseException as error:
                log.error("an event loop broke; its pokes move to another", error=one_line(error))
                self._ends = True
        with suppress(Exception):  # the loop may be broken
            self._end_tasks()
        with suppress(Exception):
            self.loop.close()

    def _end_tasks(self) -> None:
        self.is_ending = True
        with self.lock:
            for going in self.running.values():
                going.is_over = True
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with closing(_let_end(asyncio.all_tasks(self.loop))) as ending:
            self.loop.run_until_complete(ending)


class SteppedCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that notes when it has the loop, so that a poke that blocks it is told from pokes that wait."""

    def __init__(self, inner: Coroutine[Any, Any, None], unit: PokeUnit, going: RunningPoke, loop: PokeLoop) -> None:
        self.unit = unit
        self._inner = inner
        self._going = going
        self._loop = loop

    def send(self, value: Any) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._inner.throw, *error)

    def _step(self, go_on: Callable[..., Any], *given: Any) -> Any:
        if FORKED:  # a task that a poke left on the loop has forked
            end_copy()
        began = time.monotonic()
        self._loop.stepping = (self.unit, began)
        try:
            return go_on(*given)
        finally:
            if FORKED:
                end_copy()
            self._loop.stepping = None
            took = time.monotonic() - began
            if took > LONG:
                self._going.stepped += took

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("run it as a task")
