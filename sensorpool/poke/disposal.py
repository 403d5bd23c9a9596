"""Disposal of sensors that are no longer needed: they are destroyed on threads of their own.

A sensor may do anything when it is destroyed, such as close a session whose server hangs. This must stop neither a job
nor the poke of another group.
"""

import itertools
import time
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any

from sensorpool.poke.copies import end_copy
from sensorpool.poke.reusable_threads import ReusableThreads

_PATIENCE = 1.0  # seconds that sensors wait behind a slow one before another thread is started
_MOST = 64  # hanging threads; with so many, the waiting sensors are kept

_given_up: SimpleQueue[Any] = SimpleQueue()  # its `put` is reentrant, as `__del__` requires


# Have an object destroyed on another thread. Waits for nothing; may be called at any time, on any thread.
dispose: Callable[[object], None] = _given_up.put


def _destroy_next() -> None:
    """Destroy the next object.

    :raises queue.Empty: when none waits.
    """
    _given_up.get_nowait()  # this is the last reference: the object is destroyed here


class Disposal:
    """Destroys the disposed objects of this process, when `look_after` is called now and then.

    :param reusable: gives the threads.
    """

    def __init__(self, reusable: ReusableThreads) -> None:
        self._reusable = reusable
        self._busy: dict[int, float] = {}  # each destroying thread, with the time when it began its present object
        self._numbers = itertools.count()

    def look_after(self) -> None:
        """Start a thread that destroys what waits, if every such thread is held up."""
        if _given_up.empty():
            return
        now, busy = time.monotonic(), self._busy.copy()
        if len(busy) < _MOST and all(now - since > _PATIENCE for since in busy.values()):
            number = next(self._numbers)
            self._busy[number] = now
            try:
                self._reusable.do(lambda: self._destroy(number))
            except (RuntimeError, MemoryError):  # no thread can be started: the next call tries again
                del self._busy[number]

    @property
    def hanging(self) -> int:
        """How many threads hang."""
        now = time.monotonic()
        return sum(now - since > _PATIENCE for since in self._busy.copy().values())

    def _destroy(self, number: int) -> None:
        while not _given_up.empty():
            self._busy[number] = time.monotonic()
            try:
                Context().run(_destroy_next)
            except Exception:  # another thread was quicker
                break
            end_copy()
        del self._busy[number]
