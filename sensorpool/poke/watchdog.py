"""The watchdog: it ends a process in which a poke holds the interpreter lock for too long.

`faulthandler` waits on a C thread that needs no interpreter lock. While pokes go on, a thread of ours puts it off four
times a second (in a child of the isolated lane, its main thread). If no Python thread runs for a poke's time limit,
`faulthandler` prints where the threads stand and ends the process; the worker replaces it, and its job's note gives the
groups in flight a strike.

A poke that stops a thread of ours but not the process (it holds a lock that the thread needs) is left to Celery's time
limit of the job.
"""

import faulthandler
import threading
from contextlib import suppress

from sensorpool.instrumentation.background import BackgroundThread

FROZEN = b"Timeout ("  # begins what `faulthandler` writes
EVERY = 0.25  # seconds
_SLACK = 0.5  # seconds that the process may be frozen beyond a poke's time limit
_CLOSING = 6.0  # seconds that the end of a process may take at least


def arm(seconds: float, file: int = 2) -> None:
    """Have this process end when no Python thread calls this again for so long.

    :param file: where it is written where the threads stand. Celery replaces `sys.stderr` with an object that has no
        descriptor.
    """
    with suppress(RuntimeError, MemoryError):  # its thread cannot be started: the next call tries again
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)


class Watchdog:
    """Ends this process when no Python thread runs while pokes go on. Safe to share between threads.

    :param poke_timeout: the time limit of a poke, in seconds.
    """

    def __init__(self, poke_timeout: float, *, enabled: bool) -> None:
        self._limit = poke_timeout + _SLACK
        self._enabled = enabled
        self._guarded = 0  # how many `guard` without their `rest`
        self._lock = threading.Lock()
        self._on_guard = threading.Event()
        self._thread = BackgroundThread("watchdog", self._keep_watch)

    def guard(self) -> None:
        """Guard the process: pokes are about to begin."""
        with self._lock:
            self._guarded += 1
            if self._enabled and self._guarded == 1:
                arm(self._limit)  # at once: the first poke may stop our thread before it does
                self._on_guard.set()
                self._thread.start()

    def rest(self) -> None:
        """End the guard that the last `guard` began: its pokes have ended."""
        with self._lock:
            self._guarded -= 1
            if self._enabled and not self._guarded:
                self._on_guard.clear()
                faulthandler.cancel_dump_traceback_later()

    def close(self) -> None:
        """Stop: the process is about to end. Pokes that go on must not delay that for long."""
        with self._lock:
            if self._enabled and self._guarded:
                arm(max(self._limit, _CLOSING))
            self._enabled = False
            self._thread.stop()
            self._on_guard.set()
        self._thread.join(2 * EVERY)

    def _keep_watch(self) -> None:
        while self._on_guard.wait() and not self._thread.wait(EVERY):
            with self._lock:
                if self._enabled and self._guarded:
                    arm(self._limit)
