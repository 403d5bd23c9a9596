"""At parse a sensor gets a blueprint, with which Airflow's scheduler defers it at once to a triggerer.

It is the same at each parse and in every process: it depends on the DAG file and the settings alone. A sensor without
one begins on a worker, as does one whose trigger meets any doubt.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.sdk import get_parsing_context
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.definitions.xcom_arg import XComArg
from airflow.triggers.base import StartTriggerArgs

from sensorpool.airflow.compat import operators, secrets_masker, start_from_trigger, task_runtime
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.codec import decode
from sensorpool.airflow.start import templates
from sensorpool.airflow.start.blueprint import LONGEST, Blueprint
from sensorpool.airflow.start.one_task import START
from sensorpool.airflow.task import deferral, poolable
from sensorpool.airflow.task.patch import RESUME, begins_on_worker
from sensorpool.config.settings import Settings
from sensorpool.instrumentation.redaction import error_text

_OWN_WORK = {  # what only a worker does before a task begins
    "pre_execute": "its pre_execute runs on a worker",
    "render_template_fields": "it renders its templates itself",
    "prepare_template": "it prepares its templates itself",
    "get_template_env": "it renders its templates itself",
}
_AT_PARSE = frozenset({"airflow.providers.standard.sensors.time.TimeSensor"})  # computes its moment from the clock


def give_blueprint(task: Any) -> None:
    """Give a blueprint to a sensor that can begin without a worker; other tasks stay as they are.

    A worker parses for one task, which has begun there: then the reason why, if there is one, is kept for its log.

    :raises SettingsError: when a setting is wrong.
    """
    ours = deferral.airflow_settings()
    if ours.start != "scheduler" or not ours.enabled or not isinstance(task, BaseSensorOperator):
        return
    of_worker = get_parsing_context().task_id
    if of_worker is not None and of_worker != task.task_id:
        return
    try:
        blueprint = blueprint_of(task, deferral.pool().settings, ours)
        timeout = dt.timedelta(seconds=blueprint.timeout + ours.deferral_grace)
    except Exception as error:  # an odd class or argument: the sensor begins on a worker, which says why
        if of_worker is not None:
            begins_on_worker[task.dag_id, task.task_id] = error_text(error)
        return
    if of_worker is not None:
        return
    task.start_trigger_args = StartTriggerArgs(
        trigger_cls=START,
        next_method=RESUME,
        trigger_kwargs={"blueprint": blueprint.as_text()},
        next_kwargs={},
        timeout=timeout,
    )
    task.start_from_trigger = True


def blueprint_of(sensor: BaseSensorOperator, settings: Settings, ours: AirflowSettings) -> Blueprint:
    """Return the blueprint of a sensor that may start from its trigger.

    :raises NotPoolable: with the reason why it starts on a worker.
    """
    if not start_from_trigger.is_offered():
        raise NotPoolable("this Airflow cannot render for a trigger", "start")
    if getattr(sensor, "start_from_trigger", False) or getattr(sensor, "deferrable", False):
        raise NotPoolable("it defers by itself", "start")
    op_classpath = poolable.check(sensor, {}, settings, ours)
    if (why := _reason_for_worker(sensor, op_classpath, ours)) is not None:
        raise NotPoolable(why, "start")
    if poolable.is_described_by_adapter(type(sensor)):
        arguments = rebuild.arguments_of(sensor, None)
    else:
        arguments = poolable.unchecked_condition_of(sensor, {}).poke_context
    fields = [name for name in arguments if name in sensor.template_fields]
    for name, encoded in arguments.items():
        try:
            value = decode(encoded)
        except ValueError:
            raise NotPoolable(f"its argument {name} is a function, whose proof is its first poke", "start") from None
        if name in fields:
            why = templates.reason_against(value, sensor.template_ext or ())
        else:
            why = "is a time, which may be another one at each parse" if _holds_time(value) else None
        if why is not None:
            raise NotPoolable(f"its argument {name} {why}", "start")
    if secrets_masker.holds_secret(arguments):
        raise NotPoolable("one of its arguments holds a secret, and a serialized DAG keeps arguments", "secret")
    blueprint = Blueprint(
        op_classpath=op_classpath,
        arguments=arguments,
        templated=fields,
        direct=poolable.ends_directly(sensor, {}, listeners=False),
        timeout=float(sensor.timeout),
        **deferral.waits_of(sensor),
    )
    if len(blueprint.as_text()) > LONGEST:
        raise NotPoolable(f"its arguments take more than {LONGEST} characters", "start")
    return blueprint


def _reason_for_worker(sensor: Any, op_classpath: str, ours: AirflowSettings) -> str | None:
    """Return why a poolable sensor needs a worker at its start; None if it does not."""
    cls, dag = type(sensor), sensor.dag
    if not known_sensors.is_reviewed(cls):
        return "its class is not of a reviewed provider: its first poke on a worker is its proof"
    if start_from_trigger.has_teams():
        return "this Airflow has teams, and a trigger does not know the team of its task"
    if op_classpath in _AT_PARSE:
        return "its constructor computes the moment that it waits for"
    if sensor.reschedule:
        return "its mode is reschedule"
    if ours.listeners == "respect" and task_runtime.has_task_listeners():
        return "listeners of task instances are installed, and see no start without a worker"
    if sensor.execution_timeout is not None:
        return "its execution_timeout counts on a worker"
    if sensor.get_closest_mapped_task_group() is not None:
        return "its task group is mapped"
    if next(XComArg.iter_xcom_references(sensor), None) is not None:
        return "it takes the XCom of another task"
    for method, why in _OWN_WORK.items():
        if operators.overrides(sensor, method):
            return why
    if sensor.on_execute_callback or sensor._pre_execute_hook is not None:
        return "its on_execute_callback or pre_execute runs on a worker"
    if sensor.max_active_tis_per_dag is not None or sensor.max_active_tis_per_dagrun is not None:
        return "its max_active_tis_per_dag or max_active_tis_per_dagrun counts tasks on workers"
    return _reason_in_dag(sensor, dag)


def _reason_in_dag(sensor: Any, dag: Any) -> str | None:
    """Return why the templates of a DAG need a worker; None if they do not."""
    if start_from_trigger.has_own_templates(dag) or sensor._should_render_native(dag):
        return "its DAG has macros, filters or settings of its own for its templates"
    own: Mapping[str, Any] = sensor.params
    if any(name not in dag.params for name in own):
        return "it has params of its own"
    return None


def _holds_time(value: Any) -> bool:
    match value:
        case dt.datetime() | dt.date() | dt.time():
            return True
        case Mapping():
            return any(map(_holds_time, value.values()))
        case list() | tuple() | set() | frozenset():
            return any(map(_holds_time, value))
    return False
