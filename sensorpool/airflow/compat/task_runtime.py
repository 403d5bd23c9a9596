"""What a running task has of Airflow: its team, its time limit, its supervisor's answers, Airflow's metrics."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

# module and name of the function that airflow.sdk.get_current_context calls
CURRENT_CONTEXT = ("airflow.sdk.definitions._internal.contextmanager", "_get_current_context")
# what the supervisor sets in the environment of each task, so that it cannot ask Airflow's database
SET_FOR_TASKS = frozenset({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__SQL_ALCHEMY_CONN"})


def is_test_run() -> bool:
    """Whether this task runs in ``airflow dags test`` or ``airflow tasks test``: in this process, under no worker."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), InProcessSupervisorComms)


def team_of(context: Mapping[str, Any]) -> str | None:
    """Return the team of a task; None without ``[core] multi_team``, and where its DAG's bundle has none.

    The API server sends the team with the task, and answers the task's requests for that team.
    """
    return getattr(context.get("dag_run"), "team_name", None)


def bundle_folder(context: Mapping[str, Any]) -> str | None:
    """Return the folder of the bundle that has the task's DAG file; None if it is not known."""
    path = getattr(getattr(context.get("ti"), "bundle_instance", None), "path", None)
    return None if path is None else str(path)


def template_names() -> frozenset[str]:
    """Return the names that a template context may have of Airflow itself."""
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS

    return frozenset(KNOWN_CONTEXT_KEYS) - {"templates_dict"}  # sensors add that one


def has_listeners() -> bool:
    """Whether listeners are registered: they must see the end of the task, and only a worker calls them."""
    from airflow.sdk.listener import get_listener_manager

    return bool(get_listener_manager().has_listeners)


def has_task_listeners() -> bool:
    """Whether listeners are registered that must see the start or the end of a task: only a worker calls them."""
    from airflow.sdk.listener import get_listener_manager

    hooks = get_listener_manager().hook
    return any(hook.get_hookimpls() for name, hook in vars(hooks).items() if name.startswith("on_task_instance_"))


def execution_api_url(path: str) -> str:
    """Return the URL of a part of the API that workers ask when they run a task."""
    from airflow.executors.base_executor import get_execution_api_server_url

    return f"{get_execution_api_server_url().rstrip('/')}/{path}"


def execution_timeout(seconds: float) -> AbstractContextManager[Any]:
    """Return a context manager that raises AirflowTaskTimeout after some seconds, as the task runner does.

    An inner one replaces the alarm of an outer one.
    """
    from airflow.sdk.execution_time.timeout import timeout

    limit: AbstractContextManager[Any] = timeout(seconds)
    return limit


def start_dag_run(request: Any) -> bool:
    """Start the run that a DagRunTriggerException asks for; return false if the run exists already.

    ``airflow.sdk.execution_time.task_runner`` does the same when it gets that exception.
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


async def state_of(ti: Any) -> str | None:
    """Return the state of a task instance, as a trigger asks its supervisor; None also if there is no such instance.

    :raises Exception: when the supervisor does not say.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult

    comms: Any = task_runner.SUPERVISOR_COMMS
    is_mapped = ti.map_index is not None and ti.map_index >= 0
    answer = await comms.asend(
        GetTaskStates(
            dag_id=ti.dag_id,
            task_ids=[ti.task_id],
            run_ids=[ti.run_id],
            map_index=ti.map_index if is_mapped else None,
        )
    )
    if not isinstance(answer, TaskStatesResult):
        raise LookupError(f"Airflow's supervisor answers {answer!r}")
    states = answer.task_states.get(ti.run_id, {})
    state: str | None = states.get(f"{ti.task_id}_{ti.map_index}" if is_mapped else ti.task_id)
    return state


def comms_state(state: str) -> Any:
    """Return a DAG run's state as the supervisor sends it, whose text differs (``DagRunState.FAILED``)."""
    from airflow.sdk.execution_time.comms import DagRunStateResult

    return DagRunStateResult(state=state).state


def count_metric(name: str, tags: Mapping[str, str] | None = None) -> None:
    """Add one to a counter of Airflow's metrics; an error of that fails no task."""
    with suppress(Exception):
        from airflow.sdk.observability import stats

        stats.incr(f"sensorpool.{name}", tags=dict(tags or {}))
