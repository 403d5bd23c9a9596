"""The runtime of a process: what it needs to run jobs, made once at its first use."""

import os
import queue
import threading
import time
from collections.abc import Callable

from billiard.common import terminate_handler_fired

from sensorpool.config.settings import Settings
from sensorpool.instrumentation import alive, forks, spans
from sensorpool.model.values import shard_ranges
from sensorpool.service.metrics_port import Observation
from sensorpool.service.presence import Presence
from sensorpool.service.sqlite_lock import SqliteLock
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.metrics import Metrics

_PATIENCE = 1.0  # seconds for the main thread to come round


class Stopping:
    """A flag that a signal handler sets.

    Python runs signal handlers on the main thread. A signal for a whole group of processes ends the command of a poke
    too, and the poke's thread may run on before the main thread runs its handler. So `is_set` first has the main thread
    come round, which runs the handlers of all signals that have arrived.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._is_waited_for = False  # by a main thread, which comes round for those who ask
        self._asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()  # signal handlers may use it

    def set(self) -> None:
        """Say that the process is to end. Signal handlers and all threads may call this."""
        self._is_set = True
        self._asked.put(None)

    def is_set(self) -> bool:
        """Whether the process was told to end, by a signal that arrived before this call too."""
        if not self._is_set and self._is_waited_for and threading.current_thread() is not threading.main_thread():
            came_round = threading.Event()
            self._asked.put(came_round)
            came_round.wait(_PATIENCE)
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait on the main thread, and come round for those who ask.

        :returns: whether the process was told to end.
        """
        self._is_waited_for = True
        deadline = time.monotonic() + seconds
        while not self._is_set and (remaining := deadline - time.monotonic()) > 0:
            try:
                asked = self._asked.get(timeout=remaining)
            except queue.Empty:
                break
            if asked is not None:
                asked.set()
        return self._is_set


class Runtime:
    """Makes a process's worker at its first use: after the fork, once in each process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.is_prefork_child = False
        self.stopping = Stopping()  # set once the one process, or a worker's main process, is told to end
        self.is_one_process = False  # whether worker and beat are threads of one process: the broker may be in memory
        self.node: str | None = None  # the one process's name: Celery tells jobs on threads the host's
        self.begin_child: Callable[[Callable[[str | None], bool]], None] | None = None  # see `celery_patches`
        self.place = Place()
        self.ranges = frozenset(shard_ranges(settings.shards, settings.shard_code_upper_limit))
        # events with their fields, to be logged when Celery has set its logs up
        self.doubts: list[tuple[str, dict[str, str]]] = []
        self.presence: Presence | None = None  # only in a worker's main process
        self.sqlite_lock: SqliteLock | None = None  # so is the lock of an SQLite file
        self.observation: Observation | None = None  # so is what serves the metrics
        self.look_at_children: Callable[[], None] | None = None  # and so is what counts their deaths
        self._worker: tuple[int, Worker] | None = None
        self._lock = threading.Lock()
        forks.note(self)

    def begin_anew(self) -> None:
        """Leave the lock to the parent: a thread of it may hold it."""
        self._lock = threading.Lock()

    @property
    def worker(self) -> Worker:
        """This process's worker."""
        with self._lock:
            if self._worker is None or self._worker[0] != os.getpid():
                is_child = self.is_prefork_child
                worker = Worker(
                    self.settings,
                    metrics=self.metrics,
                    watchdog=is_child,
                    is_ending=lambda: self.is_told_to_end,
                    is_struck=self.is_struck,
                )
                spans.set_up()
                self._worker = (os.getpid(), worker)
            return self._worker[1]

    @property
    def is_told_to_end(self) -> bool:
        """Whether this process was told to end; a prefork child is, when all processes of its service are signalled."""
        return self.stopping.is_set() or (self.is_prefork_child and terminate_handler_fired())

    def is_struck(self, error: BaseException) -> bool:
        """Whether an error that ends a job of this prefork child is a signal, which a poke may have sent.

        Where a service manager signals each process of a service, the groups get a strike too. The next poke clears it.
        """
        return self.is_prefork_child and isinstance(error, SystemExit)

    def come_round(self) -> None:
        """Do what a worker's main process does now and then."""
        alive.come_round()
        if self.look_at_children is not None:
            self.look_at_children()

    def is_worn(self, limit: str | None = None) -> bool:
        """Whether this process should be replaced between two jobs.

        :param limit: the limit of Celery that the process has reached, if any.
        """
        return limit is not None if self._worker is None else self._worker[1].wears_out(limit)

    def close(self) -> None:
        """Close the connections of this process."""
        with self._lock:
            if self._worker is not None and self._worker[0] == os.getpid():
                self._worker[1].close()
                self._worker = None
