"""The pulse of a process: by its gaps a process knows when it stood still.

A virtual machine is moved, a container is frozen, a poke holds the interpreter lock: then no thread of the process
runs, and no poke gets on, though the clock does. A thread of ours beats ten times a second while pokes go on; where two
beats lie far apart, the process stood still between them.
"""

import threading
import time
from collections import deque
from contextlib import suppress

from sensorpool.instrumentation.background import BackgroundThread

_EVERY = 0.1  # seconds
_LONG = 0.25  # seconds between two beats of a process that stood still; on a busy machine a beat is late
_SHARE = 0.05  # of a poke's time limit: a shorter gap does not count
_KEPT = 64  # gaps


class Pulse:
    """Knows when this process stood still, for as long as it beats. Safe to share between threads.

    :param poke_timeout: the time limit of a poke, in seconds.
    """

    def __init__(self, poke_timeout: float) -> None:
        self._long = max(_LONG, _SHARE * poke_timeout)
        self._beating = 0  # how many `begin` without their `end`
        self._last = 0.0  # the last beat, by the monotonic clock
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_KEPT)  # the beats before and after each
        self._lock = threading.Lock()
        self._on = threading.Event()
        self._thread = BackgroundThread("pulse", self._beat)

    def begin(self) -> None:
        """Beat from now on."""
        with self._lock:
            self._beating += 1
            if self._beating == 1:
                self._last = time.monotonic()
                self._on.set()
            with suppress(RuntimeError, MemoryError):  # no thread can be started: the next call tries again
                self._thread.start()

    def end(self) -> None:
        """End what the last `begin` began."""
        with self._lock:
            self._note()
            self._beating -= 1
            if not self._beating:
                self._on.clear()

    def stood_still(self, began: float, ended: float) -> bool:
        """Whether the process stood still at a time between these two, by the monotonic clock."""
        with self._lock:
            self._note()  # the thread may not have run yet
            return any(before < ended and after > began for before, after in self._gaps)

    def close(self) -> None:
        """End the thread."""
        self._thread.stop()
        self._on.set()
        self._thread.join(2 * _EVERY)

    def _note(self) -> None:
        """Beat, and note the gap since the last beat if it is long. Under the lock."""
        now = time.monotonic()
        if self._beating and self._thread.is_alive and now - self._last > self._long:
            self._gaps.append((self._last, now))
        self._last = now

    def _beat(self) -> None:
        while self._on.wait() and not self._thread.wait(_EVERY):
            with self._lock:
                self._note()
