"""Holds the database's clock against this process's monotonic clock: a jump that we see puts timeouts in doubt."""

import threading
import time

from sensorpool.model.values import Milliseconds

TOLERANCE = 2_000  # milliseconds
RATE = 0.05  # clocks may drift by this share,
MOST_DRIFT = 5_000  # and by so many milliseconds at most: a process may not look for an hour
LONGEST_DOUBT = 3_600.0  # seconds


class ClockWatch:
    """Sees jumps of the database's clock.

    After a jump, timeouts are suspended for as long as the jump was wide, an hour at most: whatever direction it had,
    nothing times out early by it, and what really was due is late by no more than that.
    """

    def __init__(self) -> None:
        self._seen: tuple[Milliseconds, float] | None = None
        self._doubt_until = 0.0
        self._lock = threading.Lock()

    def trusts(self, now: Milliseconds, monotonic: float | None = None) -> bool:
        """Note the database's time, and say whether timeouts may be applied."""
        here = time.monotonic() if monotonic is None else monotonic
        with self._lock:
            if self._seen is not None:
                passed = (here - self._seen[1]) * 1000
                jump = abs((now - self._seen[0]) - passed)
                if jump > TOLERANCE + min(RATE * abs(passed), MOST_DRIFT):
                    self._doubt_until = max(self._doubt_until, here + min(jump / 1000, LONGEST_DOUBT))
            self._seen = (now, here)
            return here >= self._doubt_until
