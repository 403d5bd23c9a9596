"""All that we use of Airflow under private or moving names; each has a contract test (``tests/airflow``)."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from inspect import signature
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

logger = logging.getLogger("sensorpool.airflow")
NEXT_INTERVAL = "_get_next_poke_interval"  # what BaseSensorOperator.execute asks after a poke that found nothing
_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


def constructor_arguments(sensor: BaseOperator) -> dict[str, Any]:
    """Return the arguments that an operator was constructed with, inherited ones too."""
    return dict(sensor._BaseOperator__init_kwargs)


@cache
def base_arguments() -> frozenset[str]:
    """Return the names of the constructor's arguments that every sensor takes."""
    named = {name for cls in (BaseOperator, BaseSensorOperator) for name in signature(cls.__init__).parameters}
    return frozenset(named | {"default_args", "params", "dag", "task_group"} - {"self", "kwargs"})


@cache
def base_attributes() -> frozenset[str]:
    """Return the names of the attributes that every sensor has."""
    return frozenset(vars(BaseSensorOperator(task_id="sensorpool"))) | frozenset(dir(BaseSensorOperator)) | {"_dag"}


def is_test_run() -> bool:
    """Whether this task runs in ``airflow dags test`` or ``airflow tasks test``: in this process, under no worker."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), InProcessSupervisorComms)


def has_listeners() -> bool:
    """Whether listeners are registered: they must see how the task ends, and only a worker calls them."""
    from airflow.sdk.listener import get_listener_manager

    return bool(get_listener_manager().has_listeners)


def has_own(sensor: BaseOperator, method: str) -> bool:
    """Whether an operator's class brings its own version of one of BaseOperator's methods."""
    return getattr(type(sensor), method, None) is not getattr(BaseOperator, method)


def execution_api(path: str) -> str:
    """Return the URL of a part of the API that workers ask when they run a task."""
    from airflow.executors.base_executor import get_execution_api_server_url

    return f"{get_execution_api_server_url().rstrip('/')}/{path}"


def become_server() -> None:
    """Have this process ask Airflow's database for Connections and Variables, as the scheduler does.

    Without it only environment variables and external secret back ends answer. And have sensors not log each poke.
    """
    os.environ.setdefault(_CONTEXT, "server")
    logging.getLogger("airflow.task").setLevel(logging.WARNING)


def start_dag_run(request: Any) -> bool:
    """Have Airflow start the run that a DagRunTriggerException asks for; return false if it is there already.

    As ``airflow.sdk.execution_time.task_runner`` does when it gets that exception.
    """
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    answer = task_runner.SUPERVISOR_COMMS.send(
        TriggerDagRun(
            dag_id=request.trigger_dag_id,
            run_id=request.dag_run_id,
            logical_date=request.logical_date,
            run_after=request.run_after,
            conf=request.conf,
            reset_dag_run=request.reset_dag_run,
            note=request.note,
        )
    )
    return not (isinstance(answer, ErrorResponse) and answer.error == ErrorType.DAGRUN_ALREADY_EXISTS)


def state_as_told(state: str) -> Any:
    """Return a DAG run's state as the task runner is told it, whose text is another one (``DagRunState.FAILED``)."""
    from airflow.sdk.execution_time.comms import DagRunStateResult

    return DagRunStateResult(state=state).state


def holds_secret(value: Any) -> bool:
    """Whether Airflow would mask something of a value in a log: a password that it has seen, a key called token."""
    from airflow.sdk._shared.secrets_masker import redact

    return bool(redact(value) != value)


def count(name: str, tags: Mapping[str, str] | None = None) -> None:
    """Count something in Airflow's metrics; no task fails for want of a counter."""
    with suppress(Exception):
        from airflow.sdk.observability import stats

        stats.incr(f"sensorpool.{name}", tags=dict(tags or {}))
