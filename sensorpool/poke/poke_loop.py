"""An event loop that pokes share, on a thread of its own. Each poke has threads of its own behind the loop.

A poke whose blocking calls hang (`asyncio.to_thread`, a look-up of a name) holds only its own threads, so the calls of
other pokes do not wait.
"""

import asyncio
import itertools
import os
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.fork_guard import FORKED, end_copy
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.unit import PokeUnit

GRACE = 1.0  # seconds that a cancelled coroutine has to end
_THREADS = min(32, (os.cpu_count() or 1) + 4)  # of one poke at once: as many as asyncio gives to a whole process

P = ParamSpec("P")
T = TypeVar("T")

log = logger(__name__)

_names = itertools.count(1)


class RunningPoke:
    """One poke that goes on, as its tasks and threads know it."""

    __slots__ = ("busy", "lock", "over_at", "task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.over_at: float | None = None  # when the poke was over; its threads may go on
        self.busy = 0  # threads that run its blocking calls
        self.waiting: deque[Callable[[], None]] = deque()  # calls that wait for a thread
        self.lock = threading.Lock()

    def work(self) -> None:
        """Make the waiting calls, on a thread."""
        while True:
            with self.lock:
                if not self.waiting:
                    self.busy -= 1
                    return
                call = self.waiting.popleft()
            call()
            del call  # it must not keep its objects alive while the next call runs


CURRENT_POKE: ContextVar[RunningPoke | None] = ContextVar("CURRENT_POKE", default=None)


class PokeLoop:
    """One event loop and its pokes.

    :raises OSError: when no event loop can be made.
    :raises RuntimeError: when no thread can be started.
    """

    def __init__(self, reusable: ReusableThreads) -> None:
        self.name = next(_names)
        self.running: dict[PokeUnit, RunningPoke] = {}
        self.loop = asyncio.SelectorEventLoop()
        self.loop.set_default_executor(_Executor(reusable))
        for name in ("shutdown_default_executor", "shutdown_asyncgens"):
            setattr(self.loop, name, _leave_alone)  # these would end what other pokes use
        for name in ("set_task_factory", "set_default_executor", "set_exception_handler", "set_debug"):
            setattr(self.loop, name, _keep)  # these would hold for all pokes
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

    @property
    def holder(self) -> "asyncio.Task[Any] | None":
        """The task that has the loop just now. Called from any thread."""
        return asyncio.current_task(self.loop)

    def tell(self, what: Callable[..., None], *given: Any) -> None:
        """Have a function called on the loop; a dead loop calls nothing, and `LoopLane.supervise` finds it."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what, *given)

    def begin(self, going: RunningPoke, poke: Coroutine[Any, Any, None]) -> None:
        """Begin a poke. Runs on the loop."""
        own = Context()
        own.run(CURRENT_POKE.set, going)
        going.task = own.run(self.loop.create_task, _fork_guarded(poke))

    def answer(self) -> None:
        """Note that the loop turns. Runs on the loop."""
        self.answered_at = time.monotonic()

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
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with closing(_let_end(asyncio.all_tasks(self.loop))) as ending:
            self.loop.run_until_complete(ending)


async def _let_end(tasks: set[asyncio.Task[Any]]) -> None:
    """Give cancelled tasks a moment to end."""
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)


async def _leave_alone(*_: Any, **__: Any) -> None: ...


def _keep(*_: Any) -> None: ...


async def _fork_guarded(poke: Coroutine[Any, Any, None]) -> None:
    await _step_by_step(poke)


@types.coroutine
def _step_by_step(poke: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Run a coroutine; end the process between two of its steps if that is a copy which a poke has forked."""
    step: Callable[[Any], Any] = poke.send
    given: Any = None
    while True:
        if FORKED:  # a task that a poke left on the loop has forked
            end_copy()
        try:
            awaits = step(given)
        except StopIteration:
            return
        finally:
            if FORKED:
                end_copy()
        try:
            step, given = poke.send, (yield awaits)
        except GeneratorExit:
            poke.close()
            raise
        except BaseException as error:
            step, given = poke.throw, error


class _Executor(ThreadPoolExecutor):  # asyncio takes no other type
    """The threads behind a loop: a few for each poke."""

    def __init__(self, reusable: ReusableThreads) -> None:
        super().__init__(1)  # the base starts no thread
        self._reusable = reusable
        self._no_poke = RunningPoke()  # has the calls that no poke made

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run a task on a thread of the calling poke."""
        going = CURRENT_POKE.get() or self._no_poke
        future: Future[T] = Future()
        call = partial(_run, future, partial(task, *arguments, **named))
        with going.lock:
            going.waiting.append(call)
            if going.busy >= _THREADS:
                return future
            going.busy += 1
        try:
            self._reusable.do(going.work)
        except (RuntimeError, MemoryError):  # no thread can be started: the poke's other threads run the task
            with going.lock:
                going.busy -= 1
                if not going.busy:
                    going.waiting.remove(call)
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: all loops use the threads."""


def _run(future: Future[Any], task: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = task()
    except BaseException as error:
        end_copy()
        future.set_exception(error)
    else:
        end_copy()
        future.set_result(value)
