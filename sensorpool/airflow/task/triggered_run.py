"""TriggerDagRunOperator with ``wait_for_completion``: it starts its run on the worker, and waits for it in the pool.

It shows the protocol for operators that wait: *start* on the worker, register the condition, leave the slot; *poke* in
the pool (`adapters.dag_run`); when the task resumes, its result is returned or raised. AIP-17 names SubDag, which this
operator has replaced.
"""

import inspect
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow.sdk import timezone

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.compat.exceptions import AirflowException, AirflowFailException, DagRunTriggerException
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, poolable
from sensorpool.airflow.task.patch import Execute
from sensorpool.airflow.task.series import series_of
from sensorpool.errors import SensorpoolError
from sensorpool.model.states import Ending, State
from sensorpool.model.values import LONGEST_SPAN, Registered, Registration

_RUN_FAILED = "AirflowException: "  # so begins the reason if the poke saw that the run has failed


def execute(operator: Any, context: Any, native: Execute) -> Any:
    """Stand in for the operator's ``execute``.

    :raises BaseException: whatever that raises.
    """
    if not operator.wait_for_completion or operator.deferrable:
        return native(operator, context)
    try:
        op_classpath = poolable.admit(operator, context, deferral.pool().settings, deferral.airflow_settings())
        if inspect.unwrap(type(operator).execute) is not inspect.unwrap(native):
            raise NotPoolable("it has an execute of its own, which may follow the run itself", "own_execute")
    except Exception as error:
        deferral.report_native(operator, error)
        return native(operator, context)
    try:
        return native(operator, context)
    except DagRunTriggerException as request:
        if not request.wait_for_completion:
            raise
        wait_in_pool(operator, context, request, op_classpath)


def wait_in_pool(operator: Any, context: Any, request: DagRunTriggerException, op_classpath: str) -> None:
    """Start the run, and wait for it in the pool; or on this worker, if the run has started and cannot be registered.

    :raises TaskDeferred: when it waits in the pool.
    :raises DagRunTriggerException: when Airflow has to do it natively.
    """
    started = time.time()
    registration = Registration(
        sensor=op_classpath,
        poke_context={
            "dag_id": request.trigger_dag_id,
            "run_id": request.dag_run_id,
            "allowed_states": sorted(str(state) for state in request.allowed_states),
            "failed_states": sorted(str(state) for state in request.failed_states),
            "asked_at": timezone.utcnow().isoformat(),
        },
        key=deferral.key_of(context["ti"]),
        poke_interval=request.poke_interval or 1.0,
        timeout=LONGEST_SPAN,  # the operator has none
        external_id=str(context["ti"].id),
        **series_of({"dag_id": request.trigger_dag_id}, context),
    )
    instance: Registered | None = None
    is_started = False
    try:
        # A run to be reset may be successful until then: no poke may read it before.
        if not request.reset_dag_run:
            instance = deferral.register(registration)
        if not task_runtime.start_dag_run(request):
            raise SensorpoolError("the run exists already")
        is_started = True
        if instance is None:
            instance = deferral.register(registration)
    except Exception as error:
        deferral.report_native(operator, error)
        if instance is not None:
            with suppress(Exception):  # rescue cancels it later
                deferral.pool().cancel(instance.id, "its run was not started")
        if not is_started:
            raise request from None
        instance = None
    context["ti"].xcom_push(key="trigger_run_id", value=request.dag_run_id)
    if instance is None:  # not by Airflow, which would reset the run once more
        _wait_here(operator, context, request.dag_run_id)
    else:
        waits_for = {
            "dag_id": request.trigger_dag_id,
            "allowed": [str(state) for state in request.allowed_states],
            "failed": [str(state) for state in request.failed_states],
        }
        deferral.defer(operator, instance, direct=False, timeout=None, started=started, waits_for=waits_for)


def resume(operator: Any, context: Any, event: Any = None, *, waits_for: Mapping[str, Any], **_: Any) -> None:
    """End as the operator ends natively.

    Where the pool could not see what became of the run, it is waited for here: a retry would start another beside it.

    :param waits_for: the operator's arguments when it started its run.
    :raises AirflowException: when the run has failed; Airflow retries.
    :raises AirflowFailException: when the wait was ended, and not the run; Airflow does not retry.
    """
    result = InstanceResult.read(event)
    run_id = context["ti"].xcom_pull(
        task_ids=operator.task_id, key="trigger_run_id", map_indexes=context["ti"].map_index
    )
    operator.trigger_run_id = run_id  # as execute leaves it, for listeners
    if result.state is State.SUCCESS:
        operator.log.info("DagRun finished with allowed state.")
        return
    reason = result.reason or str(result.ending)
    if result.ending in (Ending.CANCELLED, Ending.FAIL):
        raise AirflowFailException(reason)
    was_not_seen = result.ending is Ending.POKE_ERROR and not reason.startswith(_RUN_FAILED)
    if result.ending is not Ending.HANDED_BACK and not was_not_seen:
        raise AirflowException(reason.removeprefix(_RUN_FAILED))
    operator.trigger_dag_id = waits_for["dag_id"]
    operator.allowed_states, operator.failed_states = waits_for["allowed"], waits_for["failed"]
    operator.log.info("sensorpool: handed back, waits for run %s on this worker: %s", run_id, reason)
    _wait_here(operator, context, run_id)


def _wait_here(operator: Any, context: Any, run_id: str) -> None:
    """Wait for a run on this worker.

    :raises AirflowException: when it has failed.
    """
    while True:
        state = context["ti"].get_dagrun_state(operator.trigger_dag_id, run_id)
        if state in operator.failed_states:
            raise AirflowException(f"{operator.trigger_dag_id} failed with failed state {state}")
        if state in operator.allowed_states:
            return
        time.sleep(operator.poke_interval)
