"""What pokes share on one event loop, and what is each one's own: its tasks, and its threads behind the loop.

A poke that tidies up (cancels all tasks, closes the loop's threads) tidies up what is its own. One whose blocking calls
hang (`asyncio.to_thread`, a look-up of a name) has threads of its own that hang; those of the others do not wait.
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
    """One poke that goes on, for all that it starts on its loop."""

    __slots__ = ("began", "is_over", "threads")

    def __init__(self, began: float) -> None:
        self.began = began  # by the monotonic clock
        self.is_over = False
        self.threads: _Threads | None = None  # once it needs some

    @property
    def busy(self) -> int:
        """How many threads it has."""
        return 0 if self.threads is None else self.threads.busy


class _Threads:
    """The threads of one poke."""

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[Callable[[], None]] = deque()  # what there is no thread for
        self.lock = threading.Lock()


CURRENT_POKE: ContextVar[RunningPoke | None] = ContextVar("CURRENT_POKE", default=None)


class PokeTask(asyncio.Task[T]):
    """A task of a poke that goes on is cancelled by that poke, or by us, and by none that shares its loop."""

    going: RunningPoke | None = None

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it, if that is this caller's to do."""
        going = self.going
        if going is None or going.is_over or CURRENT_POKE.get() is going:
            return super().cancel(msg)
        return False


def share(loop: asyncio.AbstractEventLoop, reusable: ReusableThreads) -> None:
    """Make a loop one that pokes can share."""

    def task(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> Any:
        made: PokeTask[Any] = PokeTask(coroutine, loop=loop, **named)
        made.going = CURRENT_POKE.get()
        return made

    loop.set_task_factory(task)
    loop.set_default_executor(_Executor(reusable))
    for name in ("shutdown_default_executor", "shutdown_asyncgens"):
        setattr(loop, name, _leave_alone)  # they would end what others use


async def _leave_alone(*_: Any, **__: Any) -> None: ...


class _Executor(ThreadPoolExecutor):  # asyncio takes no other kind
    """The threads behind a loop: a few for each poke. A copy of one takes up nothing more."""

    def __init__(self, reusable: ReusableThreads) -> None:
        super().__init__(1)  # it starts none
        self._reusable = reusable
        self._nobodys = RunningPoke(0.0)  # for what no poke started
        self._making = threading.Lock()

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run a task on a thread of the poke that asks."""
        going = CURRENT_POKE.get() or self._nobodys
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
        except (RuntimeError, MemoryError):  # no more threads can be started: those that it has will do
            with own.lock:
                own.busy -= 1
                if not own.busy:
                    own.waiting.remove(run)
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the threads alone: they are those of all loops."""


def _work(own: _Threads) -> None:
    while True:
        with own.lock:
            if not own.waiting:
                own.busy -= 1
                return
            run = own.waiting.popleft()
        run()
        del run  # or what it holds stays as long as the next one takes


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
