"""Whether a rendered sensor is poolable, and its condition; decided on the worker, before it registers."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import dag_bundles, operators, task_runtime
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import gates, known_sensors, own_execute
from sensorpool.airflow.proof.arguments import callables, dag_file, rebuild
from sensorpool.airflow.proof.state import patched_code
from sensorpool.airflow.proof.state.patched_code import OF_DAG_FILES
from sensorpool.airflow.proof.watch import environment_reads, task_reads
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.settings import Settings
from sensorpool.model.patterns import covers
from sensorpool.poke.classes import adapter_of

# the sensors whose function stands in a DAG file, as a rule
_OF_FUNCTIONS = ("airflow.providers.standard.sensors.python.", "airflow.providers.standard.decorators.sensor.")


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a sensor.

    :param adapted: whether an adapter has made it, and pokes in the sensor's place.
    :param of_dag_file: whether the pool takes the sensor from its DAG file.
    :param poked: the sensor that the pool pokes (`gates.poked_by_pool`).
    """

    op_classpath: str
    poke_context: dict[str, Any]
    adapted: bool
    of_dag_file: bool = False
    poked: Any = None


def condition_of(
    sensor: BaseSensorOperator, context: Mapping[str, Any], settings: Settings, ours: AirflowSettings
) -> Condition:
    """Return the condition of a poolable sensor.

    :raises NotPoolable: with the reason why it runs natively.
    """
    of_dag_file = gates.gate_of(sensor, ours.gates_enabled) is None and _goes_by_dag_file(sensor, context, settings)
    check(sensor, context, settings, ours, of_dag_file=of_dag_file)
    condition = condition_again(sensor, context, of_dag_file=of_dag_file)
    if not condition.adapted and not condition.of_dag_file:
        callables.check(sensor, context, condition.poke_context, ours)
    if not condition.adapted and (why := environment_reads.reason_against(sensor)) is not None:
        raise NotPoolable(why, "needs_worker")
    return condition


def check(
    sensor: BaseSensorOperator,
    context: Mapping[str, Any],
    settings: Settings,
    ours: AirflowSettings,
    *,
    of_dag_file: bool = False,
) -> str:
    """Check all that decides whether a sensor is poolable, but its condition; return its class path.

    :param of_dag_file: whether the pool takes it from its DAG file, whatever its class.
    :raises NotPoolable: with the reason why it runs natively.
    """
    op_classpath = admit(sensor, context, settings, ours, of_dag_file=of_dag_file)
    why = known_sensors.reason_against(type(sensor))
    if why is not None:
        raise NotPoolable(why, "stateful")
    gate = gates.gate_of(sensor, ours.gates_enabled)
    if gate is None and (why := own_execute.reason_against(sensor) or gates.reason_against(sensor)) is not None:
        raise NotPoolable(why, "own_execute")
    if (why := known_sensors.reason_against_arguments(sensor)) is not None:
        raise NotPoolable(why, "stateful")
    if not of_dag_file and (why := patched_code.reason_against(type(sensor))) is not None:
        raise NotPoolable(why, "callable")
    if "poke" in vars(sensor):
        raise NotPoolable("its poke is not that of its class: the DAG file has replaced it", "callable")
    if operators.overrides(sensor, operators.NEXT_INTERVAL):
        raise NotPoolable("it computes itself when its next poke is due", "own_interval")
    if (name := task_reads.computed_setting(type(sensor))) is not None:
        raise NotPoolable(f"its class computes its {name} each time, and the pool reads it once", "own_waits")
    if sensor.run_as_user:
        raise NotPoolable(f"it runs as the user {sensor.run_as_user}, and the pool's pokes as another", "run_as_user")
    if not sensor.reschedule and operators.overrides(sensor, "on_kill"):
        raise NotPoolable("its on_kill has to run on its worker, when the task is marked or cleared", "on_kill")
    return op_classpath


def condition_again(sensor: BaseSensorOperator, context: Mapping[str, Any], *, of_dag_file: bool) -> Condition:
    """Return the condition of a sensor that is, or was, poolable.

    :param of_dag_file: whether the pool takes it from its DAG file.
    :raises NotPoolable: when no JSON can hold it, or the sensor built from that differs.
    """
    if of_dag_file:
        return Condition(dag_file.SENSOR, dag_file.poke_context_of(sensor, context), adapted=False, of_dag_file=True)
    return unchecked_condition_of(sensor, context)


def _goes_by_dag_file(sensor: BaseSensorOperator, context: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the pool takes a sensor from its DAG file; not if it has a class of a name that is listed."""
    listed = Allowlist(settings.sensors_enabled)
    if dag_file.SENSOR not in listed or (file := dag_bundles.dag_file_of(sensor, context)) is None:
        return False
    return dag_file.takes_code_of(file, sensor) or (
        dag_file.is_of(file, type(sensor).__module__) and _path_of(type(sensor)) not in listed
    )


def unchecked_condition_of(sensor: BaseSensorOperator, context: Mapping[str, Any]) -> Condition:
    """Return the condition of a sensor that need not be poolable.

    :raises NotPoolable: when no JSON can hold it, or the sensor built from that differs.
    """
    op_classpath = _path_of(type(sensor))
    if (describe := _description_by_adapter(type(sensor))) is not None:
        return Condition(op_classpath, describe(sensor, context), adapted=True)
    poked = gates.poked_by_pool(sensor)
    poke_context = rebuild.with_team(type(poked), rebuild.poke_context_of(poked), task_runtime.team_of(context))
    return Condition(_path_of(type(poked)), poke_context, adapted=False, poked=poked)


def is_described_by_adapter(cls: type) -> bool:
    """Whether an adapter makes the condition of a class's sensors."""
    return _description_by_adapter(cls) is not None


def _description_by_adapter(cls: type) -> Any:
    adapter = adapter_of(cls)
    return None if adapter is None else getattr(import_module(adapter.module), "poke_context_of", None)


def admit(
    task: BaseOperator,
    context: Mapping[str, Any],
    settings: Settings,
    ours: AirflowSettings,
    *,
    of_dag_file: bool = False,
) -> str:
    """Return the class path of a task that the settings admit to the pool.

    :param of_dag_file: whether the pool takes it from its DAG file, whatever its class.
    :raises NotPoolable: when the settings do not.
    """
    if task_runtime.is_test_run():
        raise NotPoolable("this is a test run", "test_run")
    check_patterns(task.dag_id, task.task_id, ours)
    if task_runtime.team_of(context) == task_runtime.UNKNOWN_TEAM:
        raise NotPoolable("this Airflow does not say of which team it is", "team")
    if task_runtime.is_in_loop(context.get("ti")):
        raise NotPoolable("it is in a loop, and the pool would take its rounds for one task", "loop")
    if of_dag_file:
        return dag_file.SENSOR
    cls = type(task)
    op_classpath = _path_of(cls)
    check_listed(op_classpath, settings, cls)
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        raise NotPoolable(f"{op_classpath} cannot be imported by that name elsewhere", "not_importable")
    return op_classpath


def check_patterns(dag_id: str, task_id: str, ours: AirflowSettings) -> None:
    """Check that the patterns let a task be pooled.

    :raises NotPoolable: when they do not.
    """
    if not ours.admits(dag_id, task_id):
        raise NotPoolable("the patterns of [sensorpool] include and exclude leave it out", "excluded")


def check_listed(op_classpath: str, settings: Settings, cls: type | None = None) -> None:
    """Check that a class is enabled.

    :param cls: the class, where it is imported here.
    :raises NotPoolable: when it is not.
    """
    listed = Allowlist(settings.sensors_enabled)
    if op_classpath in listed and (cls is None or listed.reason_against(op_classpath, cls) is None):
        return
    if op_classpath.startswith(_OF_FUNCTIONS) or OF_DAG_FILES.match(op_classpath):
        missing = f"{dag_file.SENSOR}, which code of DAG files needs"
    else:
        is_covered = any(covers(pattern, op_classpath) for pattern in listed.patterns)
        missing = f"{op_classpath} by its exact name" if is_covered else op_classpath
    raise NotPoolable(f"[sensorpool] sensors_enabled does not list {missing}", "not_enabled")


def _path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def ends_directly(sensor: BaseOperator, context: Mapping[str, Any], *, listeners: bool = True) -> bool:
    """Whether a success of this task may be written without a worker: only if that skips nothing.

    Without a worker Airflow calls no callback, listener or post_execute, makes no asset event, pushes no links and maps
    no dependants.

    :param listeners: whether to ask for the listeners of this process.
    """
    return not (
        reads_poke_results(sensor, context, listeners=listeners)
        or sensor.outlets
        or getattr(sensor, "multiple_outputs", False)
        or operators.has_mapped_dependants(sensor)
    )


def reads_poke_results(sensor: BaseOperator, context: Mapping[str, Any], *, listeners: bool = True) -> bool:
    """Whether code of this task runs after its last poke, and may read the attributes that the poke has set.

    :param listeners: whether the listeners of this process count.
    """
    return bool(
        sensor.on_success_callback
        or sensor._post_execute_hook is not None
        or operators.overrides(sensor, "post_execute")
        or getattr(sensor, "operator_extra_links", ())
        or getattr(sensor, "overwrite_rtif_after_execution", False)
        or context.get("map_index_template") is not None
        or own_execute.continues_after_wait(type(sensor))
        or (listeners and task_runtime.has_listeners())
    )
