"""The watchdog of a worker child: ends the process if one poke holds the interpreter lock, which no thread survives.

`faulthandler` waits on a C thread that needs no interpreter lock. While somebody pokes, a thread of ours puts it off
four times a second; a child in which no thread can do even that is frozen whole. It says which poke froze it, exits,
and is replaced; its job's note makes its groups suspects. Only for prefork children: elsewhere it would take the
whole service down.
"""

import faulthandler
import threading
import time

_EVERY = 0.25  # seconds


class Watchdog:
    """Ends this process when no Python thread of it has run for ``patience`` seconds while somebody pokes."""

    def __init__(self, patience: float, *, enabled: bool) -> None:
        self._patience = patience
        self._enabled = enabled
        self._guarded = 0  # how many there are to guard
        self._lock = threading.Lock()
        self._on_guard = threading.Event()
        self._thread: threading.Thread | None = None

    def guard(self) -> None:
        """Begin: pokes are about to begin."""
        if not self._enabled:
            return
        with self._lock:
            self._guarded += 1
            if self._guarded == 1:
                self._arm()  # here and now: the first poke may keep our thread from ever doing it
                self._on_guard.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._put_off, daemon=True, name="watchdog")
                self._thread.start()

    def rest(self) -> None:
        """End: the pokes have ended."""
        if not self._enabled:
            return
        with self._lock:
            self._guarded -= 1
            if not self._guarded:
                self._on_guard.clear()
                faulthandler.cancel_dump_traceback_later()

    def _put_off(self) -> None:
        while self._on_guard.wait():
            time.sleep(_EVERY)
            with self._lock:
                if self._guarded:
                    self._arm()

    def _arm(self) -> None:
        # file 2: what Celery puts in place of sys.stderr has no descriptor
        faulthandler.dump_traceback_later(self._patience, exit=True, file=2)
