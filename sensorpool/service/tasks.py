"""The bodies of the Celery tasks."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from celery import Celery, Task

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation import logs
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import JobResult, ShardRange
from sensorpool.publish import wire
from sensorpool.service import foreign
from sensorpool.service.runtime import Runtime
from sensorpool.worker import job, rescue

# a result with no more than these is one of a look at which nothing happened
_USUAL = {"ranges", "groups", "poked", "seconds", "saved", "skipped"}

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
                return rescue.go_on(runtime.worker, runtime.place).as_dict()
        except Unreachable as error:
            log.warning("rescue waits", error=str(error))
            return {"waits": str(error)}
        finally:
            logs.restore()


def serve_ranges(ranges: Sequence[ShardRange], runtime: Runtime, request: Any, tick: int) -> dict[str, Any]:
    """Serve ranges by one job; return what came of the only one, or what came of all.

    :raises Exception: what the job raised. Then no range has a mark (`leases.range_marks`), and each has its next
        message to itself: one that fails again keeps no other waiting.
    """
    worker = runtime.worker
    about: dict[str, Any] = {"shard_range": " ".join(map(str, ranges)), "tick": tick}
    foreign_ranges = [each for each in ranges if each not in runtime.ranges]
    try:
        results: list[dict[str, Any]] = [
            {"sent_on": foreign.send_on(worker, runtime.ranges, each, request)} for each in foreign_ranges
        ]
        if ours := [each for each in ranges if each in runtime.ranges]:
            results += [each.as_dict() for each in _serve(ours, runtime, request)]
    except Unreachable as error:
        log.warning("the range waits", **about, error=str(error))
        note_trouble(runtime, ranges, str(error))
        return {"waits": str(error)}
    except Exception as error:
        note_trouble(runtime, ranges, one_line(error))
        raise
    result = results[0] if len(results) == 1 else _sum(results)
    tell = log.info if any(result[name] for name in result.keys() - _USUAL) else log.debug
    tell("poked", **about, **result)
    return result


def _serve(ranges: Sequence[ShardRange], runtime: Runtime, request: Any) -> Sequence[JobResult]:
    try:
        return job.run_each(runtime.worker, ranges, token(runtime.node or request.hostname, request.id))
    finally:
        logs.restore()  # Celery logs the job's result on this thread


def _sum(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the results of several ranges as one, for Flower: numbers are added, and of texts the last stays."""
    total: dict[str, Any] = {"ranges": len(results)}
    for result in results:
        for name, value in result.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            total[name] = round(total.get(name, 0) + value, 3) if is_number else value
    return total


def note_trouble(runtime: Runtime, ranges: Iterable[ShardRange], cause: str) -> None:
    """Note why a job failed: `health` shows it if jobs of a range keep failing."""
    with suppress(Unreachable):
        for shard_range in ranges:
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
