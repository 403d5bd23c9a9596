"""Whether the pool is alive, as a triggerer sees it, and which instances go back to a worker if it is dead."""

import time
from collections.abc import Callable, Collection

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.client.pool import Pool
from sensorpool.instrumentation.logs import logger

LONGEST = 60.0  # seconds that count between two looks: for the rest of a longer pause this process stood still

log = logger(__name__)


class Liveness:
    """A pool is dead when, according to Redis, no tick has finished for ``pool_dead_after`` seconds.

    :param tell: puts a line into the log of each waiting task, when the pool dies and when it is back.
    """

    def __init__(self, pool: Pool, settings: AirflowSettings, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._pool = pool
        self._settings = settings
        self._last = 0
        self._silence = 0.0  # seconds without a tick
        self._looked_at = time.monotonic()
        self._said = False

    def due_back(self, now: float, waiting: Collection[int]) -> list[int]:
        """Return the instances that go back now, at ``hand_back_rate``; none while the pool is alive.

        :param now: by the monotonic clock, in seconds.
        """
        elapsed, self._looked_at = min(now - self._looked_at, LONGEST), now
        try:
            self._pool.workers()
            last = max(state.last for _, state in self._pool.leases.look(self._pool.ranges))
        except Exception:  # any value may stand in Redis, and this thread serves all triggers
            last = self._last
        if last != self._last:
            if self._said:
                self._tell("sensorpool: the pool's ticks go on")
            self._last, self._silence, self._said = last, 0.0, False
        else:
            self._silence += elapsed
        if self._silence < self._settings.pool_dead_after:
            return []
        if not self._said:
            self._said = True
            what = "tasks go back to workers" if self._settings.on_pool_dead == "native" else "tasks wait for it"
            log.error(f"the pool is dead: {what}", seconds=round(self._silence), waiting=len(waiting))
            line = f"sensorpool: nothing is poked: no tick has finished for {self._silence:.0f} s; {what}"
            self._tell(f"{line}; `sensorpool health` says what is missing")
        if self._settings.on_pool_dead == "wait":
            return []
        return sorted(waiting)[: max(1, round(elapsed * self._settings.hand_back_rate))]
