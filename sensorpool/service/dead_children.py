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
from sensorpool.worker import metrics

_LOOKS = 0.1, 1.0  # seconds after billiard was told of a death

log = logger(__name__)


def watch(runtime: Runtime, hostname: str, children: Any) -> None:
    """Have each death of a child noted: Celery reports only children that had a job.

    :param children: billiard's pool.
    """
    join = children._join_exited_workers
    if getattr(join, "tells", False):
        return

    def join_and_tell(*arguments: Any, **named: Any) -> Any:
        before = list(children._pool)
        joined = join(*arguments, **named)
        for child in before if joined else ():
            if child in children._pool:
                continue
            metrics.child_ended(child.index)
            if child.exitcode not in {EX_OK, EX_RECYCLE, None}:
                _note(runtime, hostname, child.pid, child.exitcode)
        return joined

    join_and_tell.tells = True  # type: ignore[attr-defined]
    children._join_exited_workers = join_and_tell


def look_again(pool: Any, hub: Any) -> None:
    """Have a death looked for a moment after billiard was told of it, and once more.

    It is told when the child's files are closed, which is too early to see some deaths, and otherwise looks every five
    seconds.

    :param pool: Celery's pool.
    :param hub: the event loop of the worker.
    """
    children = getattr(pool, "_pool", None)
    untrack = getattr(children, "_untrack_child_process", None)
    if children is None or untrack is None or getattr(untrack, "looks", False):
        return

    def untrack_and_look(*arguments: Any) -> None:
        untrack(*arguments)
        for seconds in _LOOKS:
            hub.call_later(seconds, pool.maintain_pool)

    untrack_and_look.looks = True  # type: ignore[attr-defined]
    children._untrack_child_process = untrack_and_look


def _note(runtime: Runtime, hostname: str, pid: int, returncode: int) -> None:
    """Count the death of a child, on a thread. Runs in the main process.

    Children that are killed while their worker ends are not counted.
    """
    if is_from_outside(returncode) and runtime.worker_stopping.is_set():
        return
    # made here: a new child is forked next, and would wait for ever for a lock that another thread holds just then
    worker = runtime.worker

    def note() -> None:
        try:
            worker.incidents.add_death(hostname, pid, returncode)
        except Unreachable as error:
            log.warning("the death of a child was not noted", child=pid, error=str(error))

    threading.Thread(target=note, daemon=True, name="deaths").start()


def free_lease(runtime: Runtime, exception: object, task_id: str, hostname: str, args: Any) -> None:
    """Give back the lease of a job whose child died, and send a new job for its range. Runs in the main process."""
    if not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    try:
        shard_min, shard_max = list(args)[:2]
        first = check_range(shard_min, shard_max, runtime.settings)
        name, said, leases = token(hostname, task_id), str(exception), runtime.worker.leases
        # a job may serve several ranges
        freed = [shard_range for shard_range in {first, *runtime.ranges} if leases.free(shard_range, name)]
        for shard_range in freed or [first]:
            runtime.worker.outbox.nudge(shard_range)
            log.warning("a child died in its job; its range goes on", shard_range=str(shard_range), error=said)
    except (SensorpoolError, TypeError, ValueError) as error:
        log.warning("the lease of a dead child expires by itself", error=str(error))
