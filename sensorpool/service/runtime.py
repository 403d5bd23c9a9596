"""The runtime of a process: what it needs to run jobs, made once at its first use."""

import os
import threading

from billiard import common

from sensorpool.config.settings import Settings
from sensorpool.instrumentation import forks, spans
from sensorpool.model.values import shard_ranges
from sensorpool.service.alone import Alone
from sensorpool.service.child_limits import Limits
from sensorpool.service.observation import Observation
from sensorpool.service.presence import Presence
from sensorpool.service.stopping import Stopping, WorkerStopping
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.metrics import Metrics

_PATIENCE = 0.5  # seconds for a worker's main process to notice a signal that its child got too


class Runtime:
    """Makes a process's worker at its first use: after the fork, once in each process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.is_prefork_child = False
        self.stopping = Stopping()  # set once the one process of worker and beat is told to end
        self.worker_stopping = WorkerStopping()  # made before the forks, which share it
        self.is_one_process = False  # whether worker and beat are threads of one process: the broker may be in memory
        self.node: str | None = None  # the one process's name: Celery tells jobs on threads the host's
        self.child_limits = Limits()
        self.place = Place()
        self.ranges = frozenset(shard_ranges(settings.shards, settings.shard_code_upper_limit))
        # events with their fields, to be logged when Celery has set its logs up
        self.doubts: list[tuple[str, dict[str, str]]] = []
        self.presence: Presence | None = None  # only in a worker's main process
        self.alone: Alone | None = None  # so is the lock of an SQLite file
        self.observation: Observation | None = None  # and so is what serves the metrics
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
        return self.stopping.is_set() or (self.is_prefork_child and bool(common._should_have_exited[0]))

    def is_struck(self, error: BaseException) -> bool:
        """Whether an error that ends a job of this prefork child is a signal, and its worker was not told to end.

        Billiard raises `SystemExit` for most signals. A poke may have sent it.
        """
        return self.is_prefork_child and isinstance(error, SystemExit) and not self.worker_stopping.wait(_PATIENCE)

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
