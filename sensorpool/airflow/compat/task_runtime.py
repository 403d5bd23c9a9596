"""What a running task has of Airflow: its team, its time limit, its supervisor's answers, Airflow's metrics."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from sensorpool.airflow.compat import features

# module and name of the function that airflow.sdk.get_current_context calls
CURRENT_CONTEXT = ("airflow.sdk.definitions._internal.contextmanager", "_get_current_context")
# what the supervisor sets in the environment of each task, so that it cannot ask Airflow's database
SET_FOR_TASKS = frozenset({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__SQL_ALCHEMY_CONN"})
UNKNOWN_TEAM = "?"


def is_test_run() -> bool:
    """Whether this task runs in ``airflow dags test`` or ``airflow tasks test``: in this process, under no worker."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), InProcessSupervisorComms)


def was_rescheduled() -> bool:
    """Whether the running task was rescheduled in this try, whose log has what earlier processes of it said."""
    from airflow.sdk import get_current_context

    try:
        return bool(get_current_context().get("task_reschedule_count"))
    except RuntimeError:  # no task runs
        return False


def team_of(context: Mapping[str, Any]) -> str | None:
    """Return the team of a task; None without ``[core] multi_team``, and where its DAG's bundle has none.

    The API server sends the team with the task, and answers the task's requests for that team. An earlier version
    answers so, and does not say in the context which team it is: then each task is of `UNKNOWN_TEAM`.
    """
    if not features.has(features.TEAM_OF_RUN) and has_teams():
        return UNKNOWN_TEAM
    return getattr(context.get("dag_run"), "team_name", None)


def has_teams() -> bool:
    """Whether the tasks of this Airflow may be of teams."""
    from airflow.configuration import conf

    return features.has(features.TEAMS) and bool(conf.getboolean("core", "multi_team", fallback=False))


def is_in_loop(ti: Any) -> bool:
    """Whether a task is in a loop: there several task instances of a run have one task id, map index and try.

    A mapped task has a region of its run as well, and in it a map index.
    """
    region = getattr(ti, "region_id", None)
    return bool(region is not None and region.int and (ti.map_index is None or ti.map_index < 0))


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
    return bool(_listener_manager().has_listeners)


def has_task_listeners() -> bool:
    """Whether listeners are registered that must see the start or the end of a task: only a worker calls them."""
    hooks = _listener_manager().hook
    return any(hook.get_hookimpls() for name, hook in vars(hooks).items() if name.startswith("on_task_instance_"))


def _listener_manager() -> Any:
    """Return what the task runner tells of a task."""
    if features.has(features.SDK_LISTENERS):
        from airflow.sdk.listener import get_listener_manager
    else:
        from airflow.listeners.listener import get_listener_manager
    return get_listener_manager()


def execution_api_url(path: str) -> str:
    """Return the URL of a part of the API that workers ask when they run a task."""
    return f"{_execution_api_server().rstrip('/')}/{path}"


def _execution_api_server() -> str:
    if features.has(features.API_SERVER_URL):
        from airflow.executors.base_executor import get_execution_api_server_url

        return str(get_execution_api_server_url())
    from airflow.configuration import conf

    # as ``airflow.executors.local_executor`` of these versions
    base_url = conf.get("api", "base_url", fallback="/")
    if not base_url or base_url.startswith("/"):
        base_url = f"http://localhost:8080{base_url}"
    return str(conf.get("core", "execution_api_server_url", fallback=f"{base_url.rstrip('/')}/execution/"))


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

    more: dict[str, Any] = {}
    if features.has(features.RUN_NOTES):
        more["note"] = request.note
    if features.has(features.RUN_AFTER):
        more["run_after"] = request.run_after
    answer = task_runner.SUPERVISOR_COMMS.send(
        TriggerDagRun(
            dag_id=request.trigger_dag_id,
            run_id=request.dag_run_id,
            logical_date=request.logical_date,
            conf=request.conf,
            reset_dag_run=request.reset_dag_run,
            **more,
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
        if features.has(features.METRIC_FUNCTIONS):
            from airflow.sdk.observability import stats
        elif features.has(features.SDK_METRICS):
            from airflow.sdk._shared.observability.metrics.stats import Stats as stats
        else:
            from airflow.stats import Stats as stats
        stats.incr(f"sensorpool.{name}", tags=dict(tags or {}))
