"""What the tests take of Airflow that its versions have in different places."""

from collections.abc import Callable
from typing import Any

try:
    from airflow.sdk.serde import deserialize, serialize
except ImportError:  # 3.1
    from airflow.serialization.serialized_objects import BaseSerialization

    deserialize, serialize = BaseSerialization.deserialize, BaseSerialization.serialize
try:
    from airflow.executors.workloads.task import TaskInstanceDTO
except ImportError:  # 3.1
    from airflow.executors.workloads import TaskInstance as TaskInstanceDTO
try:
    from airflow.serialization.definitions.dag import SerializedDAG
except ImportError:  # 3.1
    from airflow.serialization.serialized_objects import SerializedDAG
try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # 3.1
    DagSerialization = SerializedDAG
try:
    from airflow.sdk.providers_manager_runtime import HookInfo
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime as ProvidersOfTask
except ImportError:  # 3.1
    from airflow.providers_manager import HookInfo
    from airflow.providers_manager import ProvidersManager as ProvidersOfTask
try:
    from airflow.sdk import ResumableJobMixin
except ImportError:  # 3.1 and 3.2: what is about it is left out (`tests.airflow.needs`)

    class ResumableJobMixin:  # type: ignore[no-redef]
        """There is none."""


try:
    from airflow.sdk.configuration import clear_secrets_backends_cache
except ImportError:  # 3.1 and 3.2 make the backends anew for each lookup

    def clear_secrets_backends_cache() -> None:
        """There is nothing to clear."""


from airflow.models.taskinstance import TaskInstance
from airflow.sdk.execution_time import comms, task_runner
from airflow.sdk.execution_time.timeout import timeout
from airflow.utils.sqlalchemy import ExtendedJSON

from sensorpool.airflow.compat.exceptions import AirflowTaskTimeout

OWN_JSON = isinstance(TaskInstance.__table__.c.next_kwargs.type, ExtendedJSON)  # 3.1 (de)serializes in the column

__all__ = [
    "DagSerialization",
    "HookInfo",
    "ProvidersOfTask",
    "ResumableJobMixin",
    "SerializedDAG",
    "TaskInstanceDTO",
    "answer",
    "clear_secrets_backends_cache",
    "deserialize",
    "execute_under_runner",
    "next_kwargs_of",
    "serialize",
]

_REQUESTS: dict[type, tuple[str, str, tuple[str, ...]]] = {  # as the supervisors of these versions answer them
    comms.GetTICount: (
        "task_instances",
        "get_count",
        ("dag_id", "map_index", "task_ids", "task_group_id", "logical_dates", "run_ids", "states"),
    ),
    comms.GetTaskStates: (
        "task_instances",
        "get_task_states",
        ("dag_id", "map_index", "task_ids", "task_group_id", "logical_dates", "run_ids"),
    ),
    comms.GetDRCount: ("dag_runs", "get_count", ("dag_id", "logical_dates", "run_ids", "states")),
    comms.GetDagRunState: ("dag_runs", "get_state", ("dag_id", "run_id")),
}
_RESULTS = {comms.GetTaskStates: comms.TaskStatesResult, comms.GetDagRunState: comms.DagRunStateResult}


def answer(client: Any, msg: Any) -> Any:
    """Answer a request of a task as its supervisor does.

    :raises ServerResponseError: when the server refuses.
    """
    try:
        from airflow.sdk.execution_time import request_handlers
    except ImportError:  # 3.1 and 3.2
        if isinstance(msg, comms.GetConnection):
            found = client.connections.get(msg.conn_id)
            is_found = not isinstance(found, comms.ErrorResponse)
            return comms.ConnectionResult.from_conn_response(found) if is_found else found
        if isinstance(msg, comms.GetVariable):
            found = client.variables.get(msg.key)
            is_found = not isinstance(found, comms.ErrorResponse)
            return comms.VariableResult.from_variable_response(found) if is_found else found
        place, method, names = _REQUESTS[type(msg)]
        response = getattr(getattr(client, place), method)(**{name: getattr(msg, name) for name in names})
        made = _RESULTS.get(type(msg))
        return response if made is None else made.from_api_response(response)
    handlers = {
        comms.GetTICount: request_handlers.handle_get_ti_count,
        comms.GetTaskStates: request_handlers.handle_get_task_states,
        comms.GetDRCount: request_handlers.handle_get_dr_count,
        comms.GetDagRunState: request_handlers.handle_get_dag_run_state,
        comms.GetConnection: request_handlers.handle_get_connection,
        comms.GetVariable: request_handlers.handle_get_variable,
    }
    response, _ = handlers[type(msg)](client, msg)
    return response


def next_kwargs_of(task: Any) -> Any:
    """Return the arguments with which a task instance of Airflow's database resumes."""
    kept = task.next_kwargs
    return kept if OWN_JSON else deserialize(kept)


def execute_under_runner(task: Any, context: Any, execute: Callable[[Any], Any]) -> Any:
    """Execute as the task runner does, under the execution_timeout of the task."""
    if hasattr(task_runner, "_run_execute_callable"):
        return task_runner._run_execute_callable(context, execute, task)
    try:  # 3.1 does this within a longer function
        with timeout(task.execution_timeout.total_seconds()):
            return execute(context)
    except AirflowTaskTimeout:
        task.on_kill()
        raise
