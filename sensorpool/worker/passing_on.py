"""A range whose groups this process cannot all poke is passed on: another job is sent, which another process may take.

Chance decides which process takes a job, so one process may take a range again and again. After each job that leaves
groups behind, the range is passed on a few times within a tick, at growing spans, so that a process that is busy now
finds one of these jobs. Where no process takes the groups, one job a tick goes on. The spans pass outside of jobs: no
slot waits for them.
"""

import random
import threading
from collections.abc import Callable

from sensorpool.instrumentation.logs import logger
from sensorpool.leases.range_state import RangeState
from sensorpool.model.values import ShardRange

PASSES = 8  # in quick succession
_AT_ONCE = 0.0

log = logger(__name__)


def span(state: RangeState, tick: float) -> float | None:
    """Return in how many seconds a job that leaves groups behind passes its range on; counts it in the state."""
    if not state.stranded:
        return None
    return random.uniform(0, tick) if state.passes >= PASSES else _next(state, tick)


def again(state: RangeState, tick: float) -> float | None:
    """Return in how many seconds a range is passed on, of which this process can poke nothing; None: it is not."""
    return _next(state, tick) if state.stranded and state.passes < PASSES else None


def _next(state: RangeState, tick: float) -> float:
    state.passes += 1
    return _AT_ONCE if state.passes == 1 else float(tick * 2.0 ** (state.passes - PASSES - 1))


class PassingOn:
    """Sends the jobs, each at its time, at most one for each range. Safe to share between threads.

    :param nudge: sends a job of a range.
    """

    def __init__(self, nudge: Callable[[ShardRange], None]) -> None:
        self._nudge = nudge
        self._timers: dict[ShardRange, threading.Timer] = {}
        self._lock = threading.Lock()

    def pass_on(self, shard_range: ShardRange, seconds: float) -> None:
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
            log.info("a range was not passed on", shard_range=str(shard_range), error=str(error))
