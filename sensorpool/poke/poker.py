"""One process's poker: it has the parts that jobs share, keeps the sensors, and lends lanes to the jobs."""

import threading
from collections.abc import Callable

from sensorpool.config.settings import Settings
from sensorpool.model.values import Milliseconds
from sensorpool.poke import copies, patches
from sensorpool.poke.cache import Cache
from sensorpool.poke.disposal import Disposal
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.poking import Poking
from sensorpool.poke.process_parts import ProcessParts
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.sensors.shared import set_time_limit


class Poker(ProcessParts):
    """The poking that lives as long as the process. Safe to share between the threads that run jobs."""

    def __init__(self, settings: Settings) -> None:
        copies.own_right()
        patches.refuse_patches()
        super().__init__(settings)
        self.cache = Cache(settings.groups_cached, self.tools)
        set_time_limit(settings.poke_timeout)
        self._lanes: list[ThreadLane] = []  # the ended lanes with pokes that have not returned
        self._reusable = ReusableThreads()
        self._disposal = Disposal(self._reusable)
        self._loops: list[LoopLane] = []
        self._free_loops: list[LoopLane] = []
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> int:
        """How many threads hang in this process."""
        with self._lock:
            self._lanes = [lane for lane in self._lanes if lane.abandoned]
            left_by_loops = sum(loops.abandoned + loops.hanging for loops in self._loops)
            return sum(lane.abandoned for lane in self._lanes) + left_by_loops + self._disposal.hanging

    def begin(
        self,
        now: Callable[[float], Milliseconds] | None = None,
        has_budget: Callable[[str], bool] | None = None,
    ) -> Poking:
        """Begin to poke for one job.

        :param now: returns the database's time of a time by the monotonic clock; None: no deadline is looked at.
        :param has_budget: returns whether a backend has a budget; None: none has.
        """
        self._disposal.look_after()
        with self._lock:
            if self._free_loops:
                loops = self._free_loops.pop()
            else:
                loops = LoopLane(self._loop_slots, self.poke_timeout, self._reusable)
                self._loops.append(loops)
        threads = ThreadLane(self._slots, self.poke_timeout, self._reusable)
        return Poking(self, threads, loops, self._take_back, now, has_budget)

    def close(self) -> None:
        """End the idle threads. Busy threads run the code of users: they end with their pokes."""
        with self._lock:
            loops = list(self._loops)
        for lane in loops:
            lane.close()
        self._reusable.close()

    def _take_back(self, threads: ThreadLane, loops: LoopLane) -> None:
        """Take back what `begin` lent."""
        self._disposal.look_after()
        with self._lock:
            self._free_loops.append(loops)
            if threads.abandoned:
                self._lanes.append(threads)
