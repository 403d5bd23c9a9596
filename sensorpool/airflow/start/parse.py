"""At parse a sensor gets a blueprint, with which Airflow's scheduler defers it at once to a triggerer.

It is the same at each parse and in every process: it depends on the DAG file and the settings alone. A sensor without
one begins on a worker, as does one whose trigger meets any doubt.
"""

import datetime as dt
import hashlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow.sdk import get_parsing_context
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.definitions.xcom_arg import XComArg
from airflow.triggers.base import StartTriggerArgs

from sensorpool.airflow.compat import operators, secrets_masker, start_from_trigger, task_runtime
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable, reason_for, reason_to_begin
from sensorpool.airflow.proof import gates, known_sensors
from sensorpool.airflow.proof.arguments import external_inputs, rebuild
from sensorpool.airflow.proof.codec import decode
from sensorpool.airflow.proof.watch import environment_reads
from sensorpool.airflow.start import templates, time_sensor
from sensorpool.airflow.start.blueprint import LONGEST, Blueprint
from sensorpool.airflow.start.one_task import START
from sensorpool.airflow.task import deferral, own_deferral, poolable
from sensorpool.airflow.task.patch import RESUME, begins_on_worker, proved_by_first_poke
from sensorpool.config.settings import Settings
from sensorpool.model.values import LONGEST_SPAN

_OWN_WORK = {  # what only a worker does before a task begins
    "pre_execute": "its pre_execute runs on a worker",
    "render_template_fields": "it renders its templates itself",
    "prepare_template": "it prepares its templates itself",
    "get_template_env": "it renders its templates itself",
}


def give_blueprint(task: Any) -> None:
    """Give a blueprint to a sensor that can begin without a worker; other tasks stay as they are.

    A worker parses for one task, and gives it none. It keeps whether the task begins here, and why, for its log; and
    what its first poke proves.

    :raises SettingsError: when a setting is wrong.
    """
    ours = deferral.airflow_settings()
    if ours.start != "scheduler" or not ours.enabled or not isinstance(task, BaseSensorOperator):
        return
    of_worker = get_parsing_context().task_id
    if of_worker is not None and of_worker != task.task_id:
        return
    reason: tuple[str, str] | None = None
    try:
        blueprint = _blueprint_of(task, deferral.pool().settings, ours)
        text = blueprint.as_text()
        if len(json.dumps(text)) > LONGEST:
            raise NotPoolable(f"its arguments take more than {LONGEST} characters", "arguments")
        timeout = dt.timedelta(seconds=blueprint.timeout + ours.deferral_grace)
    except Exception as error:  # an odd class or argument: the sensor begins on a worker, which says why
        reason = reason_for(error), reason_to_begin(getattr(error, "kind", None))
    if of_worker is not None:
        begins_on_worker[task.dag_id, task.task_id] = reason
        if reason is None and blueprint.dag_file:
            proved_by_first_poke[task.dag_id, task.task_id] = blueprint.subject()
    elif reason is None:
        task.start_trigger_args = StartTriggerArgs(
            trigger_cls=START,
            next_method=RESUME,
            trigger_kwargs={"blueprint": text},
            next_kwargs={},
            timeout=timeout,
        )
        task.start_from_trigger = True


def _blueprint_of(sensor: Any, settings: Settings, ours: AirflowSettings) -> Blueprint:
    if getattr(sensor, "deferrable", False) is not True:
        return blueprint_of(sensor, settings, ours)
    own_deferral.check(sensor)
    if sensor.execution_timeout is not None:
        raise NotPoolable("its execution_timeout counts no time in a trigger, but for one that it starts from", "limit")
    with operators.not_deferrable(sensor):
        return blueprint_of(sensor, settings, ours)


def blueprint_of(sensor: BaseSensorOperator, settings: Settings, ours: AirflowSettings) -> Blueprint:
    """Return the blueprint of a sensor that may start from its trigger.

    :raises NotPoolable: with the reason why it starts on a worker.
    """
    if not start_from_trigger.is_offered():
        raise NotPoolable("this Airflow cannot render for a trigger", "airflow")
    if getattr(sensor, "start_from_trigger", False) or getattr(sensor, "deferrable", False):
        raise NotPoolable("it defers by itself", "own_work")
    op_classpath = poolable.check(sensor, {}, settings, ours)
    _check_for_worker(sensor, ours)
    arguments = _arguments_of(sensor, op_classpath)
    has_digests = external_inputs.has_digests(arguments)
    needs_proof = not known_sensors.is_reviewed(type(sensor))
    if needs_proof:  # what it says of the state of this process may be another at each parse
        arguments = {name: value for name, value in arguments.items() if name != external_inputs.NAME}
    if not known_sensors.needs_order(type(sensor)):  # an order that is a set's is another one in each process
        arguments = json.loads(json.dumps(arguments, sort_keys=True))
    templated, others = _templated(sensor, arguments, is_moment=op_classpath in time_sensor.CLASSES)
    if secrets_masker.holds_secret(arguments):
        raise NotPoolable("one of its arguments holds a secret, and a serialized DAG keeps arguments", "arguments")
    fields = (*templated.values(), *others.values())
    may_change = sensor.reschedule and (has_digests or any(map(templates.may_change, fields)))
    return Blueprint(
        op_classpath=op_classpath,
        arguments=arguments,
        templated=list(templated),
        direct=poolable.ends_directly(sensor, {}, listeners=False) and not may_change,
        timeout=float(sensor.timeout),
        execution_timeout=sensor.execution_timeout.total_seconds() if sensor.execution_timeout else None,
        reschedule=bool(sensor.reschedule),
        dag_file=_file_digest(sensor.dag.fileloc) if needs_proof else "",
        **deferral.waits_of(sensor),
    )


def _arguments_of(sensor: BaseSensorOperator, op_classpath: str) -> dict[str, Any]:
    """Return the arguments of a sensor's constructor as JSON.

    :raises NotPoolable: when it cannot be built from them.
    """
    if op_classpath in time_sensor.CLASSES:
        return time_sensor.arguments_of(sensor)
    if poolable.is_described_by_adapter(type(sensor)):
        if not known_sensors.is_reviewed(type(sensor)):
            raise NotPoolable("an adapter pokes in its place, so no first poke on a worker proves it", "class")
        return rebuild.arguments_of(sensor, None)
    arguments = poolable.unchecked_condition_of(sensor, {}).poke_context
    if (why := environment_reads.reason_against(sensor)) is not None:
        raise NotPoolable(why, "needs_worker")
    return arguments


def _templated(
    sensor: BaseSensorOperator, arguments: Mapping[str, Any], *, is_moment: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those arguments that are template fields, decoded; and template fields that are no arguments.

    :raises NotPoolable: when a triggerer cannot have an argument as a worker has it.
    """
    fields: dict[str, Any] = {}
    extensions = sensor.template_ext or ()
    for name, encoded in arguments.items():
        try:
            value = decode(encoded)
        except ValueError:
            why = f"its argument {name} is a function, whose proof is its first poke"
            raise NotPoolable(why, "arguments") from None
        if name in sensor.template_fields:
            fields[name] = value
            if (why_not := templates.reason_against(value, extensions, sensor.dag.default_args)) is not None:
                raise NotPoolable(f"its argument {name} {why_not}", "template")
        elif _holds_time(value) and not is_moment:
            raise NotPoolable(f"its argument {name} is a time, which may be another one at each parse", "arguments")
    others = templates.others_of(sensor, fields, sensor.dag.default_args)
    names_params = any(templates.may_name(value, "params") for value in (*fields.values(), *others.values()))
    if names_params and (changed := start_from_trigger.changed_param(sensor)) is not None:
        raise NotPoolable(f"the value of the param {changed} is another one in a serialized DAG", "template")
    return fields, others


def _check_for_worker(sensor: Any, ours: AirflowSettings) -> None:
    """Check that a poolable sensor needs no worker at its start.

    :raises NotPoolable: when it does, with the reason.
    """
    if not known_sensors.is_reviewed(type(sensor)) and ours.first_poke != "worker":
        why = "its class is not of a reviewed provider: only a first poke on a worker proves it"
        raise NotPoolable(why, "class")
    if task_runtime.has_teams():
        raise NotPoolable("this Airflow has teams, and a trigger does not know the team of its task", "airflow")
    if gates.gate_of(sensor, ours.gates_enabled) is not None:
        raise NotPoolable("it waits at a gate, and its first poke is its own", "own_work")
    if known_sensors.prepared(type(sensor)):
        raise NotPoolable("its execute prepares what its poke needs", "own_work")
    if ours.listeners == "respect" and task_runtime.has_task_listeners():
        why = "listeners of task instances are installed, and see no start without a worker"
        raise NotPoolable(why, "listeners")
    if sensor.reschedule and sensor.execution_timeout is not None:
        raise NotPoolable("its execution_timeout counts each poke on a worker: its mode is reschedule", "limit")
    limits = (sensor.timeout, sensor.execution_timeout.total_seconds() if sensor.execution_timeout else 0.0)
    if max(limits) > LONGEST_SPAN:  # Airflow's scheduler ends at a date that it cannot have
        raise NotPoolable("its timeout or execution_timeout is longer than the pool's longest", "limit")
    if sensor.get_closest_mapped_task_group() is not None:
        raise NotPoolable("its task group is mapped", "mapped")
    if next(XComArg.iter_xcom_references(sensor), None) is not None:
        raise NotPoolable("it takes the XCom of another task", "xcom")
    for method, why in _OWN_WORK.items():
        if operators.overrides(sensor, method):
            raise NotPoolable(why, "own_work")
    if sensor.on_execute_callback or sensor._pre_execute_hook is not None:
        raise NotPoolable("its on_execute_callback or pre_execute runs on a worker", "own_work")
    if sensor.max_active_tis_per_dag is not None or sensor.max_active_tis_per_dagrun is not None:
        why = "its max_active_tis_per_dag or max_active_tis_per_dagrun counts tasks on workers"
        raise NotPoolable(why, "limit")
    if start_from_trigger.has_own_templates(sensor.dag) or sensor._should_render_native(sensor.dag):
        raise NotPoolable("its DAG has macros, filters or settings of its own for its templates", "template")
    if any(name not in sensor.dag.params for name in sensor.params):
        raise NotPoolable("it has params of its own", "template")


def _file_digest(path: Any) -> str:
    """Return a digest of a DAG's file.

    :raises NotPoolable: when it cannot be read.
    """
    try:
        stat = os.stat(path)
        return _digest_of(str(path), stat.st_mtime_ns, stat.st_size)
    except (OSError, TypeError, ValueError) as error:
        raise NotPoolable(f"its DAG's file cannot be read: {type(error).__name__}", "class") from None


@lru_cache(16)
def _digest_of(path: str, _changed: int, _size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:24]


def _holds_time(value: Any) -> bool:
    match value:
        case dt.datetime() | dt.date() | dt.time():
            return True
        case Mapping():
            return any(map(_holds_time, value.values()))
        case list() | tuple() | set() | frozenset():
            return any(map(_holds_time, value))
    return False
