"""The bodies of the Celery tasks."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery, Task

from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation import logs
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.exit_status import ending, is_from_outside
from sensorpool.model.values import ShardRange
from sensorpool.publish import wire
from sensorpool.service import foreign
from sensorpool.service.runtime import Runtime
from sensorpool.worker import job, rescue

log = logger(__name__)


def add_tasks(app: Celery, runtime: Runtime) -> None:
    """Give an application its two tasks."""
    limit = runtime.settings.job_time_limit

    @app.task(name=wire.POKE_SHARD, bind=True, shared=False, time_limit=limit, ignore_result=True)
    def poke_shard(self: Task, shard_min: int, shard_max: int, tick: int = 0) -> dict[str, Any]:
        """Poke the due groups of one shard range."""
        shard_range = check_range(shard_min, shard_max, runtime.settings)
        if foreign.is_refused(runtime.worker, self.request):
            return {"refused": "it is a job of another pool"}
        try:
            if shard_range not in runtime.ranges:
                return {"sent_on": foreign.send_on(runtime.worker, runtime.ranges, shard_range, self.request)}
            try:
                result = job.run(runtime.worker, shard_range, token(self.request.hostname, self.request.id))
            finally:
                logs.restore()  # Celery logs the job's result on this thread
        except Unreachable as error:
            log.warning("the range waits", shard_range=str(shard_range), tick=tick, error=str(error))
            note_trouble(runtime, shard_range, str(error))
            return {"waits": str(error)}
        except Exception as error:
            note_trouble(runtime, shard_range, one_line(error))
            raise
        if not result.skipped and (result.poked or result.left or result.extra):
            log.info("poked", shard_range=str(shard_range), tick=tick, **result.as_dict())
        return result.as_dict()

    @app.task(name=wire.RESCUE, bind=True, shared=False, ignore_result=True, time_limit=limit)
    def rescue_round(self: Task) -> dict[str, int] | dict[str, str]:
        """Run one round of rescue's chores."""
        if foreign.is_refused(runtime.worker, self.request):
            return {"refused": "it is a job of another pool"}
        try:
            return rescue.rescue(runtime.worker, runtime.place).as_dict()
        except Unreachable as error:
            log.warning("rescue waits", error=str(error))
            return {"waits": str(error)}
        finally:
            logs.restore()


def note_trouble(runtime: Runtime, shard_range: ShardRange, cause: str) -> None:
    """Note why a job failed: `health` shows it if jobs of the range keep failing."""
    with suppress(Unreachable):
        runtime.worker.trouble.note_job(shard_range, cause, runtime.settings.tick)


def check_range(shard_min: object, shard_max: object, settings: Settings) -> ShardRange:
    """Return the range that a message names, if it is a possible one: messages can be forged.

    :raises ValueError: when it is not.
    """
    limit = settings.shard_code_upper_limit
    if type(shard_min) is int and type(shard_max) is int and 0 <= shard_min < shard_max <= limit:
        return ShardRange(shard_min, shard_max)
    raise ValueError(f"not a shard range: {str(shard_min)[:40]!r}, {str(shard_max)[:40]!r}")


def token(hostname: str | None, task_id: str | None) -> str:
    """Return the token of a lease's holder: its worker and its job."""
    return f"{hostname}/{task_id}"


def note_death(runtime: Runtime, hostname: str, pid: int, returncode: int, task_ids: Sequence[str]) -> None:
    """Note the death of a child, and blame the groups that it poked, on a thread. Runs in the main process.

    Children that are killed while their worker ends are ended with it, and tell nothing.
    """
    if is_from_outside(returncode) and runtime.worker_stopping.is_set():
        return

    def note() -> None:
        try:
            tokens = [token(hostname, task_id) for task_id in task_ids]
            runtime.worker.child_deaths.add(hostname, pid, returncode)
            blamed = runtime.worker.late_crashes.blame(runtime.ranges, hostname, pid, returncode, tokens)
        except Unreachable as error:
            log.warning("the death of a child was not noted", pid=pid, error=str(error))
            return
        if watched := sum(map(len, blamed.values())):
            log.warning(
                "child processes die again and again; the groups that they poked are poked alone until the cause is "
                "found",
                groups=watched,
                cause=ending(returncode),
            )

    threading.Thread(target=note, daemon=True, name="deaths").start()


def free_lease_of_dead(runtime: Runtime, exception: object, task_id: str, hostname: str, args: Any) -> None:
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
