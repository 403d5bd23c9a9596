"""Operators that wait for a job they have submitted: SparkSubmitOperator in cluster mode, and others of their kind.

Airflow 3.3's own protocol says all that is needed, ``airflow.sdk.ResumableJobMixin``: *start* is its ``submit_job`` on
the worker; *poke* is ``get_job_status`` and ``is_job_active`` in the pool (`adapters.job`); and where the task resumes,
``poll_until_complete`` finds the job ended, and raises or returns as it does natively.
"""

import functools
import time
from contextlib import suppress
from typing import Any

from airflow.sdk.exceptions import AirflowTaskTimeout

from sensorpool.airflow import known, poolable, rebuild, slot
from sensorpool.airflow.adapters.job import EXTERNAL_ID, job_of
from sensorpool.airflow.intercept import RESUMED, Execute
from sensorpool.airflow.refusal import NotPoolable
from sensorpool.airflow.saw import Saw
from sensorpool.model import LONGEST_SPAN, Registration
from sensorpool.states import Ending


def execute(operator: Any, context: Any, native: Execute) -> Any:
    """Stand in for ``ResumableJobMixin.execute_resumable``.

    :raises BaseException: whatever that raises.
    """
    job = vars(operator).pop(RESUMED, None)
    if job is not None:
        operator.poll_until_complete(job, context)
        return operator.get_job_result(job, context)
    try:
        op_classpath = poolable.admit(operator, slot.pool().settings, slot.airflow_settings())
        arguments = rebuild.arguments_of(operator, known.JOB_ARGUMENTS.get(op_classpath))
    except Exception as error:
        slot.keep(operator, error)
        return native(operator, context)
    began, native_poll = time.time(), operator.poll_until_complete
    waiting = functools.partial(_wait_in_pool, operator, op_classpath, arguments, began, native_poll)
    vars(operator)["poll_until_complete"] = waiting
    try:
        return native(operator, context)
    finally:
        del vars(operator)["poll_until_complete"]


def _wait_in_pool(
    operator: Any,
    op_classpath: str,
    arguments: dict[str, Any],
    began: float,
    native_poll: Execute,
    external_id: Any,
    context: Any,
) -> Any:
    """Wait for a job that was submitted, or is found again: in the pool, if it can ask for the status as it stands.

    :raises TaskDeferred: when it waits in the pool.
    """
    poke_context = {**arguments, EXTERNAL_ID: external_id}
    limit = operator.execution_timeout
    registration = Registration(
        sensor=op_classpath,
        poke_context=poke_context,
        key=slot.key_of(context["ti"]),
        timeout=LONGEST_SPAN,  # these operators have none
        execution_timeout=limit and max(0.0, limit.total_seconds() - (time.time() - began)),
        external_id=str(context["ti"].id),
        logical_date=context.get("logical_date"),
    )
    try:
        instance = None if _is_over(type(operator), poke_context) else slot.register(registration)
    except Exception as error:
        slot.keep(operator, error)
        instance = None
    if instance is None:
        return native_poll(external_id, context)
    slot.leave(operator, instance, direct=False, timeout=None, started=time.time(), job=external_id)


def _is_over(cls: type, poke_context: dict[str, Any]) -> bool:
    """Ask for the status of a job as the pool will.

    :raises NotPoolable: when it cannot be had so: by what only the operator has, or from its worker's files.
    """
    try:
        return job_of(cls)(**poke_context).poke({})
    except Exception as error:
        raise NotPoolable(f"the pool could not ask for its status: {error}", "status") from error


def resume(operator: Any, context: Any, event: Any = None, job: Any = None, **_: Any) -> Any:
    """Enter ``execute`` again, which ends as its job has.

    Whatever the pool saw, the operator looks for itself: a job that is not over is waited for on this worker.

    :raises AirflowTaskTimeout: at the execution_timeout, as Airflow does; it retries, and finds the job again.
    """
    saw = Saw.read(event)
    if saw.ending is Ending.EXECUTION_TIMEOUT:
        with suppress(Exception):  # this process has not submitted the job: not every operator can end it from here
            operator.on_kill()
        raise AirflowTaskTimeout(saw.reason or str(saw.ending))
    operator.log.info("sensorpool: job %s: %s", job, saw.reason or saw.ending)
    vars(operator)[RESUMED] = job
    try:
        return operator.execute(context)
    finally:
        vars(operator).pop(RESUMED, None)
