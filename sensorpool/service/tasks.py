"""The bodies of the Celery tasks."""

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

from celery import Celery, Task

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation import logs
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import ShardRange
from sensorpool.publish import wire
from sensorpool.service import foreign
from sensorpool.service.runtime import Runtime
from sensorpool.worker import job, rescue
from sensorpool.worker.load import JobTime

_AT_MOST = 0.5  # seconds: after that a job begins with no further range

log = logger(__name__)


def add_tasks(app: Celery, runtime: Runtime) -> None:
    """Give an application its two tasks."""
    limit = runtime.settings.job_time_limit

    @app.task(name=wire.POKE_SHARD, bind=True, shared=False, time_limit=limit, ignore_result=True)
    def poke_shard(self: Task, shard_min: int, shard_max: int, tick: int = 0) -> dict[str, Any]:
        """Poke the due groups of one shard range, or of several whose jobs are short."""
        shard_range = check_range(shard_min, shard_max, runtime.settings)
        if foreign.is_refused(runtime.worker, self.request):
            return {"refused": "it is a job of another pool"}
        also = wire.read_also(getattr(self.request, wire.ALSO, None), runtime.ranges - {shard_range})
        return serve_ranges([shard_range, *also], runtime, self.request, tick)

    @app.task(name=wire.RESCUE, bind=True, shared=False, ignore_result=True, time_limit=limit)
    def rescue_round(self: Task) -> dict[str, int] | dict[str, str]:
        """Run one round of rescue's chores."""
        if foreign.is_refused(runtime.worker, self.request):
            return {"refused": "it is a job of another pool"}
        try:
            with runtime.worker.database.one_connection():
                return rescue.rescue(runtime.worker, runtime.place).as_dict()
        except Unreachable as error:
            log.warning("rescue waits", error=str(error))
            return {"waits": str(error)}
        finally:
            logs.restore()


def serve_ranges(ranges: Sequence[ShardRange], runtime: Runtime, request: Any, tick: int) -> dict[str, Any]:
    """Serve ranges one after the other; return what came of the only one, or what came of all.

    Where they take longer than their last jobs did, the rest is sent on: each range gets a job of its own.

    :raises Exception: what the last job raised that failed; the ranges after it are served all the same.
    """
    began, failed, results, job_time = time.monotonic(), None, [], JobTime()
    with runtime.worker.database.one_connection() if len(ranges) > 1 else nullcontext():
        for place, shard_range in enumerate(ranges):
            if place and time.monotonic() - began > _AT_MOST:
                results += _send_each(runtime, ranges[place:])
                break
            try:
                results.append(_serve(shard_range, runtime, request, tick, job_time))
            except Exception as error:
                failed = error
    if failed is not None:
        raise failed
    return results[0] if len(ranges) == 1 else _sum(results)


def _serve(shard_range: ShardRange, runtime: Runtime, request: Any, tick: int, job_time: JobTime) -> dict[str, Any]:
    worker = runtime.worker
    try:
        if shard_range not in runtime.ranges:
            return {"sent_on": foreign.send_on(worker, runtime.ranges, shard_range, request)}
        try:
            result = job.run(worker, shard_range, token(request.hostname, request.id), job_time)
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


def _send_each(runtime: Runtime, ranges: Sequence[ShardRange]) -> list[dict[str, Any]]:
    """Send a job for each of these ranges."""
    try:
        for shard_range in ranges:
            runtime.worker.outbox.nudge(shard_range)
    except Unreachable as error:  # their next tick comes all the same
        return [{"waits": str(error)}]
    return [{"sent_on": len(ranges)}]


def _sum(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the results of several ranges as one, for Flower: numbers are added, and of texts the last stays."""
    total: dict[str, Any] = {"ranges": len(results)}
    for result in results:
        for name, value in result.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            total[name] = round(total.get(name, 0) + value, 3) if is_number else value
    return total


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
