"""An event loop that pokes share, on a thread of its own."""

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
    """One event loop and its pokes.

    :raises OSError: when no event loop can be made.
    :raises RuntimeError: when no thread can be started.
    """

    def __init__(self, reusable: ReusableThreads) -> None:
        self.name = next(_names)
        self.running: dict[PokeUnit, RunningPoke] = {}
        self.loop = asyncio.SelectorEventLoop()
        share(self.loop, reusable)
        self.asked_at = self.answered_at = time.monotonic()  # of the last check whether the loop still turns
        self.looked_at = 0.0  # when `LoopLane.supervise` last looked at it
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

    def tell(self, what: Callable[..., None], *given: Any) -> None:
        """Have a function called on the loop; a dead loop calls nothing, and `LoopLane.supervise` finds it."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what, *given)

    def answer(self) -> None:
        """Note that the loop turns. Runs on the loop."""
        self.answered_at = time.monotonic()

    @property
    def holder(self) -> RunningPoke | None:
        """The poke whose task has the loop just now. Called from any thread."""
        return getattr(asyncio.current_task(self.loop), "going", None)

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


class ForkGuarded(Coroutine[Any, Any, None]):
    """A coroutine that ends the process between two of its steps if that is a copy which a poke has forked."""

    def __init__(self, inner: Coroutine[Any, Any, None]) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._inner.throw, *error)

    @staticmethod
    def _step(go_on: Callable[..., Any], *given: Any) -> Any:
        if FORKED:  # a task that a poke left on the loop has forked
            end_copy()
        try:
            return go_on(*given)
        finally:
            if FORKED:
                end_copy()

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("run it as a task")
