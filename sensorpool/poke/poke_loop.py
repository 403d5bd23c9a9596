"""An event loop that pokes share, on a thread of its own, and who has it at the moment."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, suppress
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.copies import FORKED, end_copy
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.sharing import RunningPoke, share
from sensorpool.poke.unit import PokeUnit

GRACE = 1.0  # seconds that a cancelled coroutine has to end

log = logger(__name__)


async def _let_end(tasks: set[asyncio.Task[Any]]) -> None:
    """Give cancelled tasks a moment to end."""
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)


_names = itertools.count(1)


class PokeLoop:
    """One event loop and who is on it."""

    def __init__(self, reusable: ReusableThreads) -> None:
        self.name = next(_names)
        self.loop = asyncio.new_event_loop()
        share(self.loop, reusable)
        self.running: dict[PokeUnit, RunningPoke] = {}
        self.stepping: tuple[PokeUnit, float] | None = None  # who has the loop just now, and since when
        self.asked_at = self.answered_at = time.monotonic()  # whether it still turns
        self.given_up = False  # whoever is on it has moved
        self.lock = threading.Lock()
        self.is_ending = False  # what is cancelled now was cancelled by us
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="poke-loop")
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise

    @property
    def is_dead(self) -> bool:
        """Whether it will never turn again."""
        return not self._thread.is_alive()

    def tell(self, what: Callable[..., None], *given: Any) -> None:
        """Have something done on the loop; one that is dead is found out by whoever looks after it."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what, *given)

    def answer(self) -> None:
        """Say that it turns. Runs on the loop."""
        self.answered_at = time.monotonic()

    def end(self) -> None:
        """Have it end, should it ever come back if it is blocked."""
        self._ends = True
        self.tell(self.loop.stop)

    def join(self, seconds: float) -> None:
        """Wait so many seconds for its thread to end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ends:
            try:
                self.loop.run_forever()  # again and again: a poke that stops it stops nobody else
            except (SystemExit, KeyboardInterrupt) as error:
                log.warning("what a poke left behind raised on its event loop, which goes on", error=one_line(error))
            except BaseException as error:
                log.error("an event loop broke; its pokes move to another", error=one_line(error))
                self._ends = True
        with suppress(Exception):  # a broken one
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
    """A coroutine that says when it has the loop: only so can one that blocks it be told from those that wait."""

    def __init__(self, inner: Coroutine[Any, Any, None], unit: PokeUnit, loop: PokeLoop) -> None:
        self._inner = inner
        self._unit = unit
        self._loop = loop

    def send(self, value: Any) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._inner.throw, *error)

    def _step(self, go_on: Callable[..., Any], *given: Any) -> Any:
        if FORKED:  # by a task that a poke left on the loop
            end_copy()
        self._loop.stepping = (self._unit, time.monotonic())
        try:
            return go_on(*given)
        finally:
            if FORKED:
                end_copy()
            self._loop.stepping = None

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("it is run as a task")
