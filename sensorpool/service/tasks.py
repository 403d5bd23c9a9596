"""The bodies of the Celery tasks, and what becomes of jobs that are not for this worker.

Two pools on one broker get each other's jobs, and a worker refuses them. A beat or client of our pool with other
``shards`` sends jobs for ranges that overlap ours. To poke such a range would poke groups twice, so the worker sends
jobs for those of our ranges that cover it.
"""

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from celery import Celery, Task

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation import logs
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.terms import covering
from sensorpool.model.values import ShardRange
from sensorpool.publish import wire
from sensorpool.service.runtime import Runtime
from sensorpool.worker import rescue
from sensorpool.worker.context import Worker

# a result with no more than these is one of a look at which nothing happened
_USUAL = {"groups", "poked", "seconds", "saved", "skipped"}

log = logger(__name__)


def add_tasks(app: Celery, runtime: Runtime) -> None:
    """Give an application its two tasks."""
    limit = runtime.settings.job_time_limit

    @app.task(name=wire.POKE_SHARD, bind=True, shared=False, time_limit=limit, ignore_result=True)
    def poke_shard(self: Task, shard_min: int, shard_max: int, tick: int = 0) -> dict[str, Any]:
        """Poke the due groups of a shard range."""
        shard_range = check_range(shard_min, shard_max, runtime.settings)
        if is_refused(runtime.worker, self.request):
            return {"refused": "it is a job of another pool"}
        return serve_range(shard_range, runtime, self.request, tick)

    @app.task(name=wire.RESCUE, bind=True, shared=False, ignore_result=True, time_limit=limit)
    def rescue_round(self: Task) -> dict[str, int] | dict[str, str]:
        """Run one round of rescue's chores."""
        if is_refused(runtime.worker, self.request):
            return {"refused": "it is a job of another pool"}
        try:
            return rescue.go_on(runtime.worker, runtime.place).as_dict()
        except Unreachable as error:
            log.warning("rescue waits", error=str(error))
            return {"waits": str(error)}
        finally:
            logs.restore()


def serve_range(shard_range: ShardRange, runtime: Runtime, request: Any, tick: int) -> dict[str, Any]:
    """Serve a range; return what came of it, for Flower.

    :raises Exception: what the job raised.
    """
    about: dict[str, Any] = {"shard_range": str(shard_range), "tick": tick}
    try:
        if shard_range in runtime.ranges:
            result = _serve(shard_range, runtime, request)
        else:
            result = {"sent_on": send_on(runtime.worker, runtime.ranges, shard_range, request)}
    except Unreachable as error:
        log.warning("the range waits", **about, error=str(error))
        note_trouble(runtime, shard_range, str(error))
        return {"waits": str(error)}
    except Exception as error:
        note_trouble(runtime, shard_range, one_line(error))
        raise
    tell = log.info if any(result[name] for name in result.keys() - _USUAL) else log.debug
    tell("poked", **about, **result)
    return result


def _serve(shard_range: ShardRange, runtime: Runtime, request: Any) -> dict[str, Any]:
    try:
        return runtime.worker.run_job(shard_range, token(runtime.node or request.hostname, request.id)).as_dict()
    finally:
        logs.restore()  # Celery logs the job's result on this thread


def note_trouble(runtime: Runtime, shard_range: ShardRange, cause: str) -> None:
    """Note why a job failed: `health` shows it if jobs of a range keep failing."""
    with suppress(Unreachable):
        runtime.worker.incidents.note_job(shard_range, cause, runtime.settings.tick)


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


def is_refused(worker: Worker, request: Any) -> bool:
    """Whether a job belongs to another pool, so that it is refused."""
    theirs = getattr(request, wire.POOL, None)
    if not wire.is_of_another_pool(theirs, worker.pool_id.get()):
        return False
    if not wire.is_of_another_pool(theirs, worker.pool_id.look_again()):  # the tables were made anew
        return False
    worker.metrics.count("jobs_refused")
    log.error(
        "a job of another pool came by our broker and is refused: use one database, or give a pool a namespace",
        ours=worker.pool_id.get(),
        theirs=str(theirs)[:40],
    )
    return True


def send_on(worker: Worker, ranges: Collection[ShardRange], shard_range: ShardRange, request: Any) -> int:
    """Send jobs for our ranges that cover a foreign range; return how many.

    :raises Unreachable: when Redis or the broker does not answer.
    """
    if getattr(request, wire.AGAIN, None) is not None:
        return 0  # workers with different ranges would send it to and fro
    worker.roster.note_foreign(shard_range)
    log.error(
        "a job came for a range that this pool is not cut into: a beat or a registrant has other SHARDS",
        shard_range=str(shard_range),
        shards=worker.settings.shards,
    )
    cover = covering(shard_range, sorted(ranges, key=lambda each: each.shard_min))
    for each in cover:
        worker.outbox.nudge(each, again=True)
    return len(cover)
