"""The jobs that a job asks for, besides those of the ticks: for a budget, and for groups that were woken meanwhile."""

import threading
from collections.abc import Callable

from sensorpool.instrumentation.logs import logger
from sensorpool.leases.waking import GAP, Waking
from sensorpool.model.values import ShardRange

log = logger(__name__)


class LaterJobs:
    """Sends these jobs, each at its time, at most one of a kind for each range. Safe to share between threads.

    :param nudge: sends a job of a range.
    :param tick: seconds.
    """

    def __init__(self, waking: Waking, nudge: Callable[[ShardRange], object], tick: float) -> None:
        self._waking = waking
        self._nudge = nudge
        self._tick = tick
        self._timers: dict[tuple[Callable[[ShardRange], object], ShardRange], threading.Timer] = {}
        self._lock = threading.Lock()

    def look_again(self, shard_range: ShardRange, seconds: float) -> None:
        """Have a range looked at again in so many seconds, for groups that wait for a budget."""
        if seconds < self._tick:  # or the tick comes before that
            self._in(seconds, self._nudge, shard_range)

    def look_for_woken(self, shard_range: ShardRange) -> None:
        """Have a range looked at again after the gap of wake-ups, if groups are woken until then, and so on."""
        self._in(GAP, self._nudge_if_woken, shard_range)

    def close(self) -> None:
        """Send no more."""
        with self._lock:
            timers = list(self._timers.values())
            self._timers.clear()
        for timer in timers:
            timer.cancel()

    def _in(self, seconds: float, send: Callable[[ShardRange], object], shard_range: ShardRange) -> None:
        with self._lock:
            if (send, shard_range) not in self._timers:
                timer = self._timers[send, shard_range] = threading.Timer(seconds, self._send, (send, shard_range))
                timer.daemon = True
                timer.start()

    def _send(self, send: Callable[[ShardRange], object], shard_range: ShardRange) -> None:
        with self._lock:
            if self._timers.pop((send, shard_range), None) is None:
                return  # closed
        try:
            send(shard_range)
        except Exception as error:  # the tick comes all the same
            log.info("a job was not sent; the next tick has one", shard_range=str(shard_range), error=str(error))

    def _nudge_if_woken(self, shard_range: ShardRange) -> None:
        is_first, again = self._waking.look(shard_range)
        if again:
            self._in(again, self._nudge_if_woken, shard_range)
        if is_first:
            self._nudge(shard_range)
