"""Sensors that are no longer needed are destroyed on threads of their own.

A sensor may do anything when it is destroyed, such as close a session whose server hangs. This must stop neither a job
nor the poke of another group.
"""

import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any

from sensorpool.poke.fork_guard import end_copy
from sensorpool.poke.reusable_threads import ReusableThreads

_PATIENCE = 1.0  # seconds that sensors wait behind a slow one before another thread is started
_MOST = 64  # hanging threads; with so many, the waiting sensors are kept

_waiting: SimpleQueue[Any] = SimpleQueue()  # its `put` is reentrant, as `__del__` requires


# Have an object destroyed on another thread. Waits for nothing; may be called at any time, on any thread.
finalize: Callable[[object], None] = _waiting.put


def _destroy_next() -> None:
    """Destroy the next object.

    :raises queue.Empty: when none waits.
    """
    _waiting.get_nowait()  # this is the last reference: the object is destroyed here


class SensorFinalizer:
    """Destroys what `finalize` was given in this process, when `look_after` is called now and then."""

    def __init__(self, threads: ReusableThreads) -> None:
        self._threads = threads
        self._since: dict[object, float] = {}  # by thread: when it began its present object

    def look_after(self) -> None:
        """Start a thread that destroys what waits, if every such thread is held up."""
        running, hanging = len(self._since), self.hanging
        if _waiting.empty() or running >= _MOST or running > hanging:
            return
        me = object()
        self._since[me] = time.monotonic()
        try:
            self._threads.do(partial(self._destroy, me))
        except (RuntimeError, MemoryError):  # no thread can be started: the next call tries again
            del self._since[me]

    @property
    def hanging(self) -> int:
        """How many threads hang."""
        now = time.monotonic()
        return sum(now - since > _PATIENCE for since in self._since.copy().values())

    def _destroy(self, me: object) -> None:
        while not _waiting.empty():
            self._since[me] = time.monotonic()
            try:
                Context().run(_destroy_next)
            except Exception:  # another thread was quicker
                break
            end_copy()
        del self._since[me]
