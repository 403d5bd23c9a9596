"""Where sensors go when nobody needs them: they are destroyed on threads of their own.

What a sensor does at its end is its own affair: it may close a session there whose server hangs. That must stop neither
a job nor the poke of another group.
"""

import itertools
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from sensorpool.instrumentation import logs
from sensorpool.poke.copies import end_copy
from sensorpool.poke.reusable_threads import ReusableThreads

_PATIENCE = 1.0  # seconds that the others wait behind one that takes its time
_MOST = 64  # threads that hang: with more of them, what waits is kept

_given_up: SimpleQueue[Any] = SimpleQueue()  # `put` is made for `__del__`: it may be called while it runs


# Have something destroyed elsewhere. Waits for nothing, and may be called at any time, on any thread.
dispose: Callable[[object], None] = _given_up.put


class Disposal:
    """Destroys what is disposed of in this process; `look_after` it now and then.

    :param hands: gives the threads.
    """

    def __init__(self, reusable: ReusableThreads) -> None:
        self._reusable = reusable
        self._busy: dict[int, float] = {}  # the threads that destroy, each with since when it is at one thing
        self._numbers = itertools.count()

    def look_after(self) -> None:
        """See that somebody destroys what waits: another thread, if all that do so are held up."""
        for handler in logs.strays():
            _given_up.put(handler)
            del handler
        if _given_up.empty():
            return
        now, busy = time.monotonic(), self._busy.copy()
        if len(busy) < _MOST and all(now - since > _PATIENCE for since in busy.values()):
            number = next(self._numbers)
            self._busy[number] = now
            try:
                self._reusable.do(lambda: self._destroy(number))
            except (RuntimeError, MemoryError):  # no more threads can be started: later
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
                _given_up.get_nowait()  # nobody else has it: so it is destroyed here
            except Exception:  # another thread was quicker
                break
            end_copy()
        del self._busy[number]
