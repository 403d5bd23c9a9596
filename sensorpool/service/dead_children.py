"""Deaths of a worker's children, as its main process sees them: they are counted, and the leases given back."""

import threading
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from billiard.pool import EX_OK, EX_RECYCLE

from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.exit_status import is_from_outside
from sensorpool.service.runtime import Runtime
from sensorpool.service.tasks import check_range, token

log = logger(__name__)


class DeadChildren:
    """Counts the children that died since the last look: Celery reports only those that had a job.

    :param pool: billiard's.
    """

    def __init__(self, runtime: Runtime, hostname: str, pool: Any) -> None:
        self._runtime, self._hostname, self._pool = runtime, hostname, pool
        self._seen: list[Any] = list(pool._pool)

    def look(self) -> None:
        """Count deaths. Runs in the main process."""
        seen, self._seen = self._seen, list(self._pool._pool)
        for child in seen:
            if child not in self._seen and child.exitcode not in {EX_OK, EX_RECYCLE, None}:
                self._note(child.pid, child.exitcode)

    def _note(self, pid: int, returncode: int) -> None:
        """Count a death, on a thread. Children that are killed while their worker ends are not counted."""
        if is_from_outside(returncode) and self._runtime.is_told_to_end:
            return
        # made here: a child that is forked next would wait for ever for a lock that another thread holds just then
        worker = self._runtime.worker

        def note() -> None:
            try:
                worker.incidents.add_death(self._hostname, pid, returncode)
            except Unreachable as error:
                log.warning("the death of a child was not noted", child=pid, error=str(error))

        threading.Thread(target=note, daemon=True, name="deaths").start()


def free_lease(runtime: Runtime, exception: object, task_id: str, hostname: str, args: Any) -> None:
    """Give back the lease of a job whose child died, and send a new job for its range. Runs in the main process."""
    if not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    try:
        shard_min, shard_max = list(args)[:2]
        shard_range = check_range(shard_min, shard_max, runtime.settings)
        runtime.worker.leases.free(shard_range, token(hostname, task_id))
        runtime.worker.outbox.nudge(shard_range)
        log.warning("a child died in its job; its range goes on", shard_range=str(shard_range), error=str(exception))
    except (SensorpoolError, TypeError, ValueError) as error:
        log.warning("the lease of a dead child expires by itself", error=str(error))
