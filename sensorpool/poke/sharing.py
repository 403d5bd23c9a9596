"""How pokes share one event loop: each poke has tasks of its own, and threads of its own behind the loop.

A poke that tidies up (cancels all tasks, closes the loop's threads) touches only its own. A poke whose blocking calls
hang (`asyncio.to_thread`, a look-up of a name) holds only its own threads; the calls of other pokes do not wait.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sensorpool.poke.copies import end_copy
from sensorpool.poke.reusable_threads import ReusableThreads

_THREADS = min(32, (os.cpu_count() or 1) + 4)  # of one poke at once: as many as asyncio gives to a whole process

P = ParamSpec("P")
T = TypeVar("T")


class RunningPoke:
    """One poke that goes on, as its tasks and threads know it."""

    __slots__ = ("is_over", "threads")

    def __init__(self) -> None:
        self.is_over = False
        self.threads: _Threads | None = None  # made at its first blocking call

    @property
    def busy(self) -> int:
        """How many threads run its blocking calls."""
        return 0 if self.threads is None else self.threads.busy


class _Threads:
    """The threads of one poke."""

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[Callable[[], None]] = deque()  # calls that wait for a thread
        self.lock = threading.Lock()


CURRENT_POKE: ContextVar[RunningPoke | None] = ContextVar("CURRENT_POKE", default=None)


class PokeTask(asyncio.Task[T]):
    """A task of a poke. Its poke and the lane may cancel it; other pokes on the loop may not."""

    going: RunningPoke | None = None

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task, if the caller may; return whether it is being cancelled."""
        going = self.going
        if going is None or going.is_over or CURRENT_POKE.get() is going:
            return super().cancel(msg)
        return False


def share(loop: asyncio.AbstractEventLoop, reusable: ReusableThreads) -> None:
    """Make a loop that pokes can share: tasks and threads belong to their poke."""

    def task(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> Any:
        made: PokeTask[Any] = PokeTask(coroutine, loop=loop, **named)
        made.going = CURRENT_POKE.get()
        return made

    loop.set_task_factory(task)
    loop.set_default_executor(_Executor(reusable))
    for name in ("shutdown_default_executor", "shutdown_asyncgens"):
        setattr(loop, name, _leave_alone)  # these would end what other pokes use
    for name in ("set_task_factory", "set_default_executor", "set_exception_handler", "set_debug"):
        setattr(loop, name, _keep)  # these would hold for the tasks of all pokes


async def _leave_alone(*_: Any, **__: Any) -> None: ...


def _keep(*_: Any) -> None: ...


class _Executor(ThreadPoolExecutor):  # asyncio takes no other type
    """The threads behind a loop: a few for each poke. In a copy of the process they take no more calls."""

    def __init__(self, reusable: ReusableThreads) -> None:
        super().__init__(1)  # the base starts no thread
        self._reusable = reusable
        self._no_poke = RunningPoke()  # has the calls that no poke made
        self._making = threading.Lock()

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run a task on a thread of the calling poke."""
        going = CURRENT_POKE.get() or self._no_poke
        future: Future[T] = Future()
        run = partial(_run, future, partial(task, *arguments, **named))
        with self._making:
            own = going.threads = going.threads or _Threads()
        with own.lock:
            own.waiting.append(run)
            if own.busy >= _THREADS:
                return future
            own.busy += 1
        try:
            self._reusable.do(partial(_work, own))
        except (RuntimeError, MemoryError):  # no thread can be started: the poke's other threads run the task
            with own.lock:
                own.busy -= 1
                if not own.busy:
                    own.waiting.remove(run)
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: all loops use the threads."""


def _work(own: _Threads) -> None:
    while True:
        with own.lock:
            if not own.waiting:
                own.busy -= 1
                return
            run = own.waiting.popleft()
        run()
        del run  # it must not keep its objects alive while the next call runs


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
