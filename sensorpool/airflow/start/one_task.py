"""A patch of the triggerer: it hands our triggers their own task, and not its whole DAG.

Airflow 3.3 sends the DAG with each trigger that starts a task, and builds it twice: for a DAG of 1,000 tasks that takes
200 ms and 1.4 MB for each waiting task. Our triggers get a DAG of one task. Airflow's own code makes the workload
from that; only where it looks the DAG up it asks a stand-in for its `DBDagBag`.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from inspect import signature
from types import SimpleNamespace
from typing import Any

START = "sensorpool.airflow.start.trigger.StartTrigger"
_OURS = frozenset({START, "sensorpool.airflow.trigger.PoolTrigger", "sensorpool.airflow.trigger.PauseTrigger"})
_PATCHED = "_sensorpool_create_workload"
_MEMORY = "_sensorpool_found"
_REMEMBERED = 4  # serialized DAGs of a round: the triggers of one run follow each other, and a DAG may take megabytes
_LEFT_OUT = frozenset({"tasks", "task_group", "edge_info", "dag_dependencies", "doc_md"})

log = logging.getLogger(__name__)


def install(module: Any) -> None:
    """Patch the triggerer's supervisor, whose module has just been imported; an error leaves it as it is."""
    try:
        supervisor = module.TriggerRunnerSupervisor
        if not hasattr(supervisor, _PATCHED):
            native = supervisor._create_workload
            supervisor._create_workload = _of_one_task(native, module.TriggerRunner)
            setattr(supervisor, _PATCHED, native)
    except Exception as error:
        log.warning("sensorpool: triggers get their whole DAG: %s: %s", type(error).__name__, error)


def _of_one_task(native: Callable[..., Any], runner: Any) -> Callable[..., Any]:
    taken = signature(native)
    if not {"trigger", "dag_bag"} <= taken.parameters.keys():
        raise TypeError("its _create_workload takes no trigger or no dag_bag")

    @functools.wraps(native)
    def create_workload(*arguments: Any, **named: Any) -> Any:
        given = taken.bind(*arguments, **named)
        trigger = given.arguments["trigger"]
        if trigger.task_instance is None or trigger.classpath not in _OURS:
            return native(*arguments, **named)
        given.arguments["dag_bag"] = OneTaskDags(given.arguments["dag_bag"], trigger)
        workload = native(*given.args, **given.kwargs)
        if getattr(workload, "dag_data", None) is not None and not _gives_context(runner, workload):
            workload.dag_data = workload.dag_run_data = None
        return workload

    return create_workload


def _gives_context(runner: Any, workload: Any) -> bool:
    """Whether the triggerer can make the template context: it ends, with all of its triggers, if it cannot."""
    try:
        runner.create_runtime_ti(workload.ti, workload.dag_data, workload.dag_run_data).get_template_context()
    except Exception as error:
        log.warning("sensorpool: %s starts on a worker: %s: %s", workload.ti.task_id, type(error).__name__, error)
        return False
    return True


class OneTaskDags:
    """Stands in for a `DBDagBag`: its DAGs have the one task of a trigger. Other attributes are those of the bag."""

    def __init__(self, dag_bag: Any, trigger: Any) -> None:
        self._dag_bag = dag_bag
        self._task_id: str = trigger.task_instance.task_id
        self._needs_context = trigger.classpath == START

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dag_bag, name)

    def get_serialized_dag_model_for_run(self, *arguments: Any, **named: Any) -> Any:
        """Return the serialized DAG of a run."""
        return self._cut("get_serialized_dag_model_for_run", *arguments, **named)

    def get_serialized_dag_model(self, *arguments: Any, **named: Any) -> Any:
        """Return the serialized DAG of a version."""
        return self._cut("get_serialized_dag_model", *arguments, **named)

    def _cut(self, question: str, *arguments: Any, **named: Any) -> Any:
        """Return a serialized DAG of one task; None where the trigger, or its task, needs none."""
        if not self._needs_context:
            return None
        try:
            found = self._find(question, *arguments, **named)
            data = None if found is None else with_one_task(found.data, self._task_id)
        except Exception as error:  # a version of Airflow with another format
            log.warning("sensorpool: %s starts on a worker: %s: %s", self._task_id, type(error).__name__, error)
            return None
        if data is None:
            return None
        task = SimpleNamespace(task_id=self._task_id, start_from_trigger=True)
        return SimpleNamespace(data=data, dag=SimpleNamespace(get_task=lambda _: task))

    def _find(self, question: str, *arguments: Any, **named: Any) -> Any:
        """Ask the bag, or remember what it said: a bag lives for one round of the supervisor, in one session."""
        memory: dict[Any, Any] = self._dag_bag.__dict__.setdefault(_MEMORY, {})
        key = question, arguments, tuple(sorted(named.items(), key=lambda item: item[0]))
        if key not in memory:
            while len(memory) >= _REMEMBERED:
                del memory[next(iter(memory))]
            memory[key] = getattr(self._dag_bag, question)(*arguments, **named)
        return memory[key]


def with_one_task(data: Mapping[str, Any], task_id: str) -> dict[str, Any] | None:
    """Return a serialized DAG with one task of its tasks; None if that task does not start from a trigger.

    :raises KeyError, TypeError: when it has another format.
    """
    dag = data["dag"]
    encoded = next((task for task in dag["tasks"] if task["__var"]["task_id"] == task_id), None)
    if encoded is None or not encoded["__var"].get("start_from_trigger"):
        return None
    alone = {name: value for name, value in encoded["__var"].items() if name != "downstream_task_ids"}
    none: dict[str, list[str]] = {
        f"{where}_{what}_ids": [] for where in ("upstream", "downstream") for what in ("group", "task")
    }
    group = {**dag["task_group"], **none, "children": {task_id: ["operator", task_id]}}
    rest = {name: value for name, value in dag.items() if name not in _LEFT_OUT}
    one = {**rest, "tasks": [{**encoded, "__var": alone}], "task_group": group, "edge_info": {}, "dag_dependencies": []}
    return {**data, "dag": one}
