"""Operators that wait for a job they have submitted: SparkSubmitOperator in cluster mode, and others of their kind.

Airflow 3.3's own protocol says all that is needed, ``airflow.sdk.ResumableJobMixin``: *start* is its ``submit_job`` on
the worker; *poke* is ``get_job_status`` and ``is_job_active`` in the pool (`adapters.job`); and where the task resumes,
``poll_until_complete`` finds the job ended, and raises or returns as it does natively.
"""

import functools
import time
from typing import Any

from airflow.sdk import ResumableJobMixin

from sensorpool.airflow import known, poolable, rebuild, slot
from sensorpool.airflow.adapters.job import EXTERNAL_ID
from sensorpool.airflow.finish import Saw
from sensorpool.airflow.slot import Execute
from sensorpool.model import Registration
from sensorpool.plan import LONGEST

_JOB = "_sensorpool_job"


def install() -> None:
    """Patch the mixin, once a process."""
    if not hasattr(ResumableJobMixin, slot.RESUME):
        setattr(ResumableJobMixin, slot.RESUME, resume)
        ResumableJobMixin.execute_resumable = _patched(ResumableJobMixin.execute_resumable)


def _patched(native: Execute) -> Execute:
    @functools.wraps(native)
    def execute_resumable(self: Any, context: Any) -> Any:
        job = vars(self).pop(_JOB, None)
        if job is not None:
            self.poll_until_complete(job, context)
            return self.get_job_result(job, context)
        if not slot.is_enabled():
            return native(self, context)
        try:
            op_classpath = poolable.admit(self, slot.pool().settings, slot.airflow_settings())
            arguments = rebuild.arguments_of(self, known.JOB_ARGUMENTS.get(op_classpath))
        except Exception as error:
            slot.keep(self, error)
            return native(self, context)
        waiting = functools.partial(_wait_in_pool, self, op_classpath, arguments, self.poll_until_complete)
        vars(self)["poll_until_complete"] = waiting
        try:
            return native(self, context)
        finally:
            del vars(self)["poll_until_complete"]

    return execute_resumable


def _wait_in_pool(
    operator: Any, op_classpath: str, arguments: dict[str, Any], native_poll: Execute, external_id: Any, context: Any
) -> Any:
    """Wait for a job that was submitted, or is found again.

    :raises TaskDeferred: when it waits in the pool.
    """
    try:
        instance = slot.register(
            Registration(
                sensor=op_classpath,
                poke_context={**arguments, EXTERNAL_ID: external_id},
                key=slot.key_of(context["ti"]),
                timeout=LONGEST,  # these operators have none
                external_id=str(context["ti"].id),
                logical_date=context.get("logical_date"),
            )
        )
    except Exception as error:
        slot.keep(operator, error)
        return native_poll(external_id, context)
    slot.leave(operator, instance, direct=False, timeout=None, started=time.time(), job=external_id)


def resume(self: Any, context: Any, event: Any = None, started: float = 0.0, job: Any = None) -> Any:
    """Enter ``execute`` again, which ends as its job has; added to the mixin as its method.

    Whatever the pool saw, the operator looks for itself: a job that is not over is waited for on this worker.
    """
    saw = Saw.read(event, started)
    self.log.info("sensorpool: job %s: %s", job, saw.reason or saw.ending)
    vars(self)[_JOB] = job
    try:
        return self.execute(context)
    finally:
        vars(self).pop(_JOB, None)
