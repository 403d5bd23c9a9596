"""The bodies of the Celery tasks, and what a process needs to run them."""

import os
import threading
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery, Task

from sensorpool import cycle, rescue, wire
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.logs import logger
from sensorpool.metrics import Metrics
from sensorpool.model import ShardRange
from sensorpool.settings import Settings
from sensorpool.worker import Worker

log = logger(__name__)


class Runtime:
    """Makes what a process runs jobs with when it is first needed: after the fork, once a process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.is_prefork_child = False
        self.is_one_process = False  # worker and beat are threads of one process: a broker in memory will do
        self.place = rescue.Place()
        self._worker: tuple[int, Worker] | None = None
        self._lock = threading.Lock()

    @property
    def worker(self) -> Worker:
        """This process's worker."""
        with self._lock:
            if self._worker is None or self._worker[0] != os.getpid():
                worker = Worker(self.settings, metrics=self.metrics, watchdog=self.is_prefork_child)
                self._worker = (os.getpid(), worker)
            return self._worker[1]

    @property
    def is_worn(self) -> bool:
        """Whether this process should be replaced between two jobs."""
        return self._worker is not None and self._worker[1].is_worn

    def close(self) -> None:
        """Close the connections of this process."""
        with self._lock:
            if self._worker is not None and self._worker[0] == os.getpid():
                self._worker[1].close()
                self._worker = None


def add_tasks(app: Celery, runtime: Runtime) -> None:
    """Give an application its two tasks."""
    limit = runtime.settings.job_time_limit

    @app.task(name=wire.POKE_SHARD, bind=True, shared=False, time_limit=limit, ignore_result=True)
    def poke_shard(self: Task, shard_min: int, shard_max: int, tick: int = 0) -> dict[str, Any]:
        """Poke what is due in one shard range."""
        shard_range = check_range(shard_min, shard_max, runtime.settings)
        try:
            result = cycle.run(runtime.worker, shard_range, token(self.request.hostname, self.request.id))
        except Unreachable as error:
            log.warning("the range waits", shard_range=str(shard_range), tick=tick, error=str(error))
            return {"waits": str(error)}
        if not result.skipped and (result.poked or result.left or result.extra):
            log.info("poked", shard_range=str(shard_range), tick=tick, **result.as_dict())
        return result.as_dict()

    @app.task(name=wire.RESCUE, shared=False, ignore_result=True, time_limit=limit)
    def rescue_round() -> dict[str, int] | dict[str, str]:
        """Find what dead processes left half done."""
        try:
            return rescue.rescue(runtime.worker, runtime.place).as_dict()
        except Unreachable as error:
            log.warning("rescue waits", error=str(error))
            return {"waits": str(error)}


def check_range(shard_min: object, shard_max: object, settings: Settings) -> ShardRange:
    """Make sure that a message names a range that there may be: messages can be forged.

    :raises ValueError: when it does not.
    """
    limit = settings.shard_code_upper_limit
    if type(shard_min) is int and type(shard_max) is int and 0 <= shard_min < shard_max <= limit:
        return ShardRange(shard_min, shard_max)
    raise ValueError(f"not a shard range: {str(shard_min)[:40]!r}, {str(shard_max)[:40]!r}")


def token(hostname: str | None, task_id: str | None) -> str:
    """Name the holder of a lease: its worker, and its job."""
    return f"{hostname}/{task_id}"


def free_lease_of_dead(runtime: Runtime, exception: object, task_id: str, hostname: str, args: Any) -> None:
    """Give back the lease of a job whose child died, and have its range looked at now. Runs in the main process."""
    if not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    try:
        shard_min, shard_max = list(args)[:2]
        shard_range = check_range(shard_min, shard_max, runtime.settings)
        runtime.worker.leases.free(shard_range, token(hostname, task_id))
        runtime.worker.publisher.nudge(shard_range)
        log.warning("a child died in its job; its range goes on", shard_range=str(shard_range), error=str(exception))
    except (SensorpoolError, TypeError, ValueError) as error:
        log.warning("the lease of a dead child expires by itself", error=str(error))
