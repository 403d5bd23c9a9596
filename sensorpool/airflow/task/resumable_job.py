"""Operators that wait for a job they have submitted: SparkSubmitOperator in cluster mode, and others of their kind.

Airflow 3.3's own protocol, ``airflow.sdk.ResumableJobMixin``, has all that is needed: *start* is its ``submit_job`` on
the worker; *poke* is ``get_job_status`` and ``is_job_active`` in the pool (`adapters.job`). When the task resumes,
``poll_until_complete`` finds the job ended, and returns or raises as it does natively.
"""

import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.compat.exceptions import AirflowTaskTimeout
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.job import EXTERNAL_ID, job_of
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.watch import status_reads, supervisor_requests
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, poolable, saved_attributes
from sensorpool.airflow.task.patch import RESUMED, Execute
from sensorpool.airflow.task.series import series_of
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
        arguments = rebuild.with_team(type(operator), arguments, task_runtime.team_of(context))
        saved = saved_attributes.save(operator, rebuild.rebuild(type(operator), arguments))
    except Exception as error:
        deferral.report_native(operator, error)
        return native(operator, context)
    began, native_poll = time.time(), operator.poll_until_complete
    waiting = functools.partial(_wait_in_pool, operator, op_classpath, arguments, began, saved, native_poll)
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
    saved: dict[str, str],
    native_poll: Execute,
    external_id: Any,
    context: Any,
) -> Any:
    """Wait for a job that was submitted, or found again: in the pool, if the pool can ask for its status.

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
        **series_of(arguments, context),
    )
    try:
        is_over, missing = _check_status(type(operator), {**arguments, **job})
        arguments = rebuild.with_first_poke(type(operator), arguments, missing)
        registration = replace(registration, poke_context={**arguments, **job})
        instance = None if is_over else deferral.register(registration)
    except Exception as error:
        deferral.report_native(operator, error)
        instance = None
    if instance is None:
        return native_poll(external_id, context)
    more: dict[str, Any] = {"job": external_id, **saved}
    deferral.defer(operator, instance, direct=False, timeout=None, started=time.time(), **more)


def _check_status(cls: type, poke_context: Mapping[str, Any]) -> tuple[bool, set[str]]:
    """Ask for the status of a job as the pool does.

    :return: whether the job is over, and the Connections and Variables that were looked up and not found.
    :raises NotPoolable: when the status takes something that only the operator, or its worker, has.
    """
    requests: list[str] = []
    missing: set[str] = set()

    def looked_up(name: str, is_there: bool) -> None:
        (missing.discard if is_there else missing.add)(name)

    try:
        with supervisor_requests.noting(requests.append, looked_up), status_reads.noting(requests.append):
            is_over = job_of(cls)(**poke_context).poke({})
    except Exception as error:
        raise NotPoolable(f"the pool could not ask for its status: {error}", "status") from error
    if requests:
        raise NotPoolable(f"the pool could not ask for its status: that {requests[0]}", "status")
    return is_over, missing


def resume(operator: Any, context: Any, event: Any = None, job: Any = None, **more: Any) -> Any:
    """Enter ``execute`` again, which ends as the job has.

    The operator itself asks for the status again: it waits on this worker for a job that is not over.

    :param more: the saved attributes, and arguments of another version.
    :raises AirflowException: when the operator would ask elsewhere than where it has submitted the job.
    :raises AirflowTaskTimeout: at the execution_timeout, as Airflow does; it retries, and finds the job again.
    """
    result = InstanceResult.read(event)
    if result.ending is Ending.EXECUTION_TIMEOUT:  # at this error the task runner calls on_kill
        raise AirflowTaskTimeout(result.reason or str(result.ending))
    operator.log.info("sensorpool: job %s: %s", job, result.reason or result.ending)
    if (lost := saved_attributes.restore(operator, more.get(saved_attributes.NAME))) is not None:
        raise lost
    vars(operator)[RESUMED] = job
    try:
        return operator.execute(context)
    finally:
        vars(operator).pop(RESUMED, None)
