"""Jobs that are sent in a moment: for groups whose budget allows more pokes then, or that were woken meanwhile."""

import threading
from collections.abc import Callable

from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import ShardRange

log = logger(__name__)


class LaterJobs:
    """Sends the jobs, each at its time, at most one for each range. Safe to share between threads.

    :param nudge: sends a job of a range.
    """

    def __init__(self, nudge: Callable[[ShardRange], None]) -> None:
        self._nudge = nudge
        self._timers: dict[ShardRange, threading.Timer] = {}
        self._lock = threading.Lock()

    def send_in(self, shard_range: ShardRange, seconds: float) -> None:
        """Send a job in so many seconds, unless one is about to be sent."""
        with self._lock:
            if shard_range not in self._timers:
                timer = self._timers[shard_range] = threading.Timer(seconds, self._send, (shard_range,))
                timer.daemon = True
                timer.start()

    def close(self) -> None:
        """Send no more."""
        with self._lock:
            timers = list(self._timers.values())
            self._timers.clear()
        for timer in timers:
            timer.cancel()

    def _send(self, shard_range: ShardRange) -> None:
        with self._lock:
            if self._timers.pop(shard_range, None) is None:
                return  # closed
        try:
            self._nudge(shard_range)
        except Exception as error:  # the tick comes all the same
            log.info("a job was not sent; the next tick has one", shard_range=str(shard_range), error=str(error))
