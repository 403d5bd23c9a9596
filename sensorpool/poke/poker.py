"""One process's poker: what its jobs share (classes, imports, slots, shared calls, sensors), and the lanes."""

import threading
from collections.abc import Callable

from sensorpool.config.settings import Settings
from sensorpool.model.values import Milliseconds
from sensorpool.poke import fork_guard, patches
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.classes import RETRY_AFTER, Classes
from sensorpool.poke.imports import Imports
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.poking import Poking
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.sensor_finalizer import SensorFinalizer
from sensorpool.poke.shared_call import SharedCalls
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.poke.tools import PokeTools
from sensorpool.sensors.shared import set_time_limit


class Poker:
    """The poking that lives as long as the process. Safe to share between the threads that run jobs."""

    def __init__(self, settings: Settings) -> None:
        fork_guard.own_right()
        patches.refuse_patches()
        set_time_limit(settings.poke_timeout)
        self.classes = Classes(settings.sensors_enabled, retry_after=RETRY_AFTER)
        self.imports = Imports(self.classes)
        self.tools = PokeTools(self.classes, Answers(settings.infra_failures), {})
        self.shared_calls = SharedCalls(self.tools)
        self.cache = Cache(settings.groups_cached, self.tools)
        self._poke_timeout = settings.poke_timeout  # seconds
        concurrency = settings.poke_concurrency
        self._slots, self._loop_slots = Slots(concurrency, of_threads=True), Slots(concurrency)
        self._threads = ReusableThreads()
        self._finalizer = SensorFinalizer(self._threads)
        self._ended: list[ThreadLane] = []  # lanes that were given back with pokes that have not returned
        self._loops: list[LoopLane] = []
        self._free_loops: list[LoopLane] = []
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> int:
        """How many threads hang in this process."""
        with self._lock:
            self._ended = [lane for lane in self._ended if lane.abandoned]
            left_by_loops = sum(loops.abandoned + loops.hanging for loops in self._loops)
            return sum(lane.abandoned for lane in self._ended) + left_by_loops + self._finalizer.hanging

    def begin(self, now: Callable[[float], Milliseconds] | None = None) -> Poking:
        """Begin to poke for one job.

        :param now: returns the database's time of a time by the monotonic clock; None: no deadline is looked at.
        """
        self._finalizer.look_after()
        with self._lock:
            if self._free_loops:
                loops = self._free_loops.pop()
            else:
                loops = LoopLane(self._loop_slots, self._poke_timeout, self._threads)
                self._loops.append(loops)
        threads = ThreadLane(self._slots, self._poke_timeout, self._threads)
        return Poking(self.tools, self.imports, self.shared_calls, threads, loops, self._take_back, now)

    def _take_back(self, threads: ThreadLane, loops: LoopLane) -> None:
        """Take back what `begin` lent."""
        self._finalizer.look_after()
        with self._lock:
            self._free_loops.append(loops)
            if threads.abandoned:
                self._ended.append(threads)

    def close(self) -> None:
        """End the idle threads. Busy threads run the code of users: they end with their pokes."""
        with self._lock:
            loops = list(self._loops)
        for lane in loops:
            lane.close()
        self._threads.close()
