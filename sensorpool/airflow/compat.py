"""All that we use of Airflow under private or moving names; each has a contract test (``tests/airflow``)."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache
from inspect import signature
from typing import Any

import structlog
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import masking
from sensorpool.instrumentation import logs

logger = logging.getLogger("sensorpool.airflow")
NEXT_INTERVAL = "_get_next_poke_interval"  # what BaseSensorOperator.execute asks after a poke that found nothing
# what airflow.sdk.get_current_context asks
CURRENT_CONTEXT = ("airflow.sdk.definitions._internal.contextmanager", "_get_current_context")
# what the supervisor sets in the environment of each task, so that it cannot ask Airflow's database
SET_FOR_TASKS = frozenset({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__SQL_ALCHEMY_CONN"})
_ANY_DEPTH = 1_000
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


@cache
def task_attributes(cls: type) -> frozenset[str]:
    """Return the names of the attributes in which two tasks of a class may differ whose own arguments are equal."""
    base: type[BaseOperator] = BaseSensorOperator if issubclass(cls, BaseSensorOperator) else BaseOperator
    names = vars(base(task_id="sensorpool")).keys() | {"_dag", "max_retry_delay"}
    return frozenset(name for name in names if not name.startswith("_BaseOperator__")) - {"_log", "_logger_name"}


def own_attributes(operator: BaseOperator) -> dict[str, Any]:
    """Return the attributes of an operator that not every sensor has."""
    cls: Any = type(operator)
    base, slots = base_attributes(), _slots_of(cls)
    kept = {name: getattr(operator, name) for name in slots if hasattr(operator, name)} if slots else {}
    return {
        name: value
        for name, value in (kept | vars(operator)).items()
        if name not in base and not name.startswith(("_BaseOperator__", "_abc_"))
    }


def class_attribute(cls: type, name: str) -> Any:
    """Return what a class or a base of it has under a name, as it stands there; None if there is nothing."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def made_of(value: object) -> dict[str, Any] | None:
    """Return the attributes that an object is made of; None, if it has no place for any."""
    slots = [name for cls in type(value).__mro__ for name in _slots(cls)]
    if not slots and not hasattr(value, "__dict__"):
        return None
    kept = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return kept | (vars(value) if hasattr(value, "__dict__") else {})


@cache
def _slots_of(cls: type) -> list[str]:
    return [name for base in cls.__mro__ for name in _slots(base)]


def _slots(cls: type) -> list[str]:
    names = vars(cls).get("__slots__", ())
    prefix = f"_{cls.__name__.lstrip('_')}"
    spelt = [names] if isinstance(names, str) else names
    return [
        f"{prefix}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in spelt
        if name not in ("__dict__", "__weakref__")
    ]


def is_test_run() -> bool:
    """Whether this task runs in ``airflow dags test`` or ``airflow tasks test``: in this process, under no worker."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), InProcessSupervisorComms)


def team_of(context: Mapping[str, Any]) -> str | None:
    """Return the team of a task; None without ``[core] multi_team``, and where its DAG's bundle has none.

    The API server says it with the task, and answers by it what the task asks for.
    """
    return getattr(context.get("dag_run"), "team_name", None)


def has_listeners() -> bool:
    """Whether listeners are registered: they must see how the task ends, and only a worker calls them."""
    from airflow.sdk.listener import get_listener_manager

    return bool(get_listener_manager().has_listeners)


def has_own(sensor: BaseOperator, method: str) -> bool:
    """Whether an operator, or its class, brings its own version of one of Airflow's methods."""
    return method in vars(sensor) or class_has_own(type(sensor), method)


def class_has_own(cls: type, method: str) -> bool:
    """Whether a class of operators brings its own version of one of Airflow's methods."""
    airflows = getattr(BaseOperator, method, None) or getattr(BaseSensorOperator, method, None)
    return getattr(cls, method, None) is not airflows


def execution_api(path: str) -> str:
    """Return the URL of a part of the API that workers ask when they run a task."""
    from airflow.executors.base_executor import get_execution_api_server_url

    return f"{get_execution_api_server_url().rstrip('/')}/{path}"


def become_server() -> None:
    """Have this process be one of Airflow's that ask its database, as the scheduler does, and log as the pool does.

    For Connections and Variables of pokes see `supervisor.stand_in`.
    """
    os.environ.setdefault(_CONTEXT, "server")
    if (level := logs.restore()) is not None:
        _log_as_the_pool(level)


@cache
def _log_as_the_pool(level: int) -> None:
    """Have what Airflow logs by structlog take the way of all that is logged here, with its own level.

    Airflow prints it, and Celery takes what is printed for warnings.
    """
    for_tasks = logging.getLogger("airflow.task")  # the sensors' own, and their hooks'
    for_tasks.handlers.clear()  # it writes the logs of tasks: there are none here
    for_tasks.setLevel(level)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.PositionalArgumentsFormatter(), _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _as_record(_: Any, __: str, event: dict[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
    """Say an event of structlog as the arguments of a logger of the standard library."""
    special: dict[str, Any] = {
        name: event.pop(name) for name in ("exc_info", "stack_info", "stacklevel") if name in event
    }
    return ("%s", str(event.pop("event", ""))), {**special, "extra": {"fields": event}}


def execution_timeout(seconds: float) -> AbstractContextManager[Any]:
    """Return what raises AirflowTaskTimeout in its block after some seconds, as the task runner does.

    One within another takes its place: there is one alarm.
    """
    from airflow.sdk.execution_time.timeout import timeout

    limit: AbstractContextManager[Any] = timeout(seconds)
    return limit


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
    return any(redact(value, None, _ANY_DEPTH) != value for redact in maskers())


def maskers() -> list[Callable[..., Any]]:
    """Return the functions by which Airflow hides secrets, of a value under a name, to a depth: `masking.MASKERS`."""
    from airflow.sdk._shared.secrets_masker import redact

    of_core = sys.modules.get(masking.MASKERS[0])
    return [redact] if of_core is None else [redact, of_core.redact]


def count(name: str, tags: Mapping[str, str] | None = None) -> None:
    """Count something in Airflow's metrics; no task fails for want of a counter."""
    with suppress(Exception):
        from airflow.sdk.observability import stats

        stats.incr(f"sensorpool.{name}", tags=dict(tags or {}))
