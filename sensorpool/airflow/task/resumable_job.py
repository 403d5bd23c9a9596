"""Operators that wait for a job they have submitted: SparkSubmitOperator in cluster mode, and others of their kind.

Airflow 3.3's own protocol says all that is needed, ``airflow.sdk.ResumableJobMixin``: *start* is its ``submit_job`` on
the worker; *poke* is ``get_job_status`` and ``is_job_active`` in the pool (`adapters.job`); and where the task resumes,
``poll_until_complete`` finds the job ended, and raises or returns as it does natively.
"""

import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow.sdk.exceptions import AirflowTaskTimeout

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.job import EXTERNAL_ID, job_of
from sensorpool.airflow.proof import known_sensors, rebuild, status_reads, supervisor
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import as_started, deferral, poolable
from sensorpool.airflow.task.patch import RESUMED, Execute
from sensorpool.model.states import Ending
from sensorpool.model.values import LONGEST_SPAN, Registration


def execute(operator: Any, context: Any, native: Execute) -> Any:
    """Stand in for ``ResumableJobMixin.execute_resumable``.

    :raises BaseException: whatever that raises.
    """
    job = vars(operator).pop(RESUMED, None)
    if job is not None:
        operator.poll_until_complete(job, context)
        return operator.get_job_result(job, context)
    try:
        op_classpath = poolable.admit(operator, context, deferral.pool().settings, deferral.airflow_settings())
        arguments = rebuild.arguments_of(operator, known_sensors.JOB_ARGUMENTS.get(op_classpath))
        told = as_started.tell(operator, rebuild.rebuild(type(operator), arguments))
    except Exception as error:
        deferral.keep(operator, error)
        return native(operator, context)
    began, native_poll = time.time(), operator.poll_until_complete
    waiting = functools.partial(_wait_in_pool, operator, op_classpath, arguments, began, told, native_poll)
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
    told: dict[str, str],
    native_poll: Execute,
    external_id: Any,
    context: Any,
) -> Any:
    """Wait for a job that was submitted, or is found again: in the pool, if it can ask for the status as it stands.

    :raises TaskDeferred: when it waits in the pool.
    """
    job = {EXTERNAL_ID: external_id}
    limit = operator.execution_timeout
    registration = Registration(
        sensor=op_classpath,
        poke_context={**arguments, **job},
        key=deferral.key_of(context["ti"]),
        timeout=LONGEST_SPAN,  # these operators have none
        execution_timeout=limit and max(0.0, limit.total_seconds() - (time.time() - began)),
        external_id=str(context["ti"].id),
        logical_date=context.get("logical_date"),
    )
    try:
        is_over, missing = _look(type(operator), {**arguments, **job})
        arguments = rebuild.with_missing(type(operator), arguments, missing)
        registration = replace(registration, poke_context={**arguments, **job})
        instance = None if is_over else deferral.register(registration)
    except Exception as error:
        deferral.keep(operator, error)
        instance = None
    if instance is None:
        return native_poll(external_id, context)
    deferral.leave(operator, instance, direct=False, timeout=None, started=time.time(), job=external_id, **told)


def _look(cls: type, poke_context: Mapping[str, Any]) -> tuple[bool, set[str]]:
    """Ask for the status of a job as the pool will.

    :return: whether the job is over, and what was looked up for that and is not there (`missing`).
    :raises NotPoolable: when it cannot be had so: by what only the operator has, or from its worker's files.
    """
    asked: list[str] = []
    missing: set[str] = set()

    def looked_up(name: str, is_there: bool) -> None:
        (missing.discard if is_there else missing.add)(name)

    try:
        with supervisor.noting(asked.append, looked_up), status_reads.noting(asked.append):
            is_over = job_of(cls)(**poke_context).poke({})
    except Exception as error:
        raise NotPoolable(f"the pool could not ask for its status: {error}", "status") from error
    if asked:
        raise NotPoolable(f"the pool could not ask for its status: that {asked[0]}", "status")
    return is_over, missing


def resume(operator: Any, context: Any, event: Any = None, job: Any = None, **left: Any) -> Any:
    """Enter ``execute`` again, which ends as its job has.

    Whatever the pool saw, the operator looks for itself: a job that is not over is waited for on this worker.

    :param left: what it was built with when it started, and what another version left for itself.
    :raises AirflowException: when it would look elsewhere than where it has submitted the job.
    :raises AirflowTaskTimeout: at the execution_timeout, as Airflow does; it retries, and finds the job again.
    """
    result = InstanceResult.read(event)
    if result.ending is Ending.EXECUTION_TIMEOUT:  # the task runner calls on_kill where it sees that
        raise AirflowTaskTimeout(result.reason or str(result.ending))
    operator.log.info("sensorpool: job %s: %s", job, result.reason or result.ending)
    if (lost := as_started.put_back(operator, left.get(as_started.NAME))) is not None:
        raise lost
    vars(operator)[RESUMED] = job
    try:
        return operator.execute(context)
    finally:
        vars(operator).pop(RESUMED, None)
