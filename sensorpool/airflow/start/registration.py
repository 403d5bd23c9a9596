"""The registration of a sensor that starts without a worker: its templates rendered, and its proof made again."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import external_inputs, rebuild
from sensorpool.airflow.proof.codec import decode, encode
from sensorpool.airflow.proof.watch import environment_reads
from sensorpool.airflow.start import company_code, proved_classes, templates, time_sensor
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import poolable, reschedule_condition, reschedule_limits, saved_attributes
from sensorpool.airflow.task.backend import backend_of
from sensorpool.airflow.task.deferral import airflow_settings, check_secrets
from sensorpool.airflow.task.location import location_of
from sensorpool.airflow.task.series import series_of
from sensorpool.client.pool import Pool
from sensorpool.client.validate import CheckedRegistration
from sensorpool.model.values import Key, Registration

# attributes of every sensor that an adapter may ask for
_OF_WAIT = ("poke_interval", "timeout", "soft_fail", "silent_fail", "never_fail", "exponential_backoff")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sensor that is ready to be registered.

    :param resume_arguments: for the resume method of its task.
    """

    checked: CheckedRegistration
    resume_arguments: Mapping[str, Any]


def prepare(pool: Pool, blueprint: Blueprint, key: Key, external_id: str, context: Mapping[str, Any]) -> Prepared:
    """Render, build and check a sensor.

    :param external_id: the id of the try of its task instance.
    :param context: the template context.
    :raises NotPoolable: when it has to start on a worker, with the reason.
    :raises Exception: whatever its templates and its constructor raise.
    """
    ours = airflow_settings()
    if not ours.enabled or ours.start != "scheduler":  # the DAG of its run may have been parsed before
        raise NotPoolable("[sensorpool] enabled or start is off")
    poolable.check_patterns(key.dag_id, key.task_id, ours)
    poolable.check_listed(blueprint.op_classpath, pool.settings)
    if not blueprint.dag_file:
        return _prepare(pool, blueprint, key, external_id, context)
    proved_classes.check_known(pool.database, blueprint)  # before its code is imported
    with company_code.guarded():
        return _prepare(pool, blueprint, key, external_id, context)


def _prepare(pool: Pool, blueprint: Blueprint, key: Key, external_id: str, context: Mapping[str, Any]) -> Prepared:
    module, _, name = blueprint.op_classpath.rpartition(".")
    cls = getattr(import_module(module), name)
    needs_proof = not known_sensors.is_reviewed(cls)
    if needs_proof:
        proved_classes.check_known(pool.database, blueprint)
        proved_classes.check_code(pool.database, cls, blueprint)
    rendered = _rendered(blueprint, context)
    if blueprint.op_classpath in time_sensor.CLASSES:
        sensor = time_sensor.build(cls, rendered, context["dag"].timezone)
    else:
        sensor = _rendered_sensor(cls, blueprint, rendered, context)
    for name in _OF_WAIT:
        setattr(sensor, name, getattr(blueprint, name))
    condition = poolable.unchecked_condition_of(sensor, context)
    if not condition.adapted and (why := environment_reads.reason_against(sensor)) is not None:
        raise NotPoolable(why, "needs_worker")
    poke_context = condition.poke_context
    if needs_proof:
        proved = proved_classes.poke_context(pool.database, sensor, blueprint, poke_context)
        poke_context = external_inputs.with_first_poke_of(poke_context, proved)
    check_secrets(poke_context)
    registration = Registration(
        sensor=condition.op_classpath,
        poke_context=poke_context,
        key=key,
        poke_interval=blueprint.poke_interval,
        timeout=blueprint.timeout,
        execution_timeout=blueprint.execution_timeout,
        soft_fail=blueprint.soft_fail,
        silent_fail=blueprint.silent_fail,
        never_fail=blueprint.never_fail,
        exponential_backoff=blueprint.exponential_backoff,
        max_wait=blueprint.max_wait,
        external_id=external_id,
        backend=backend_of(sensor, poke_context),
        location=location_of(sensor, poke_context),
        **series_of(poke_context, context),
    )
    resume_arguments: dict[str, Any] = (
        reschedule_condition.resume_arguments(condition) | reschedule_limits.resume_arguments(sensor)
        if blueprint.reschedule
        else saved_attributes.save(sensor)
    )
    return Prepared(pool.check(registration, try_out=False), resume_arguments)


def resume_arguments_of(blueprint: Blueprint, known: Any) -> dict[str, Any]:
    """Return the arguments of the resume method for a sensor that another triggerer has registered.

    The attributes that a sensor in poke mode began with are lost with that triggerer.

    :param known: of `inspecting.of_key`.
    """
    if not blueprint.reschedule:
        return {}
    condition = reschedule_condition.resume_arguments_of_registered(known.op_classpath, known.poke_context)
    return condition | reschedule_limits.resume_arguments(blueprint)


def _rendered_sensor(cls: Any, blueprint: Blueprint, rendered: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Return a sensor as a worker has it: built from its templates, and then rendered.

    :param rendered: its arguments.
    :raises NotPoolable: when it has a template that cannot be rendered here.
    :raises Exception: whatever its templates and its constructor raise.
    """
    sensor = rebuild.rebuild(cls, blueprint.arguments)
    others = templates.others_of(sensor, blueprint.templated)
    fields = {name: decode(rendered[name]) for name in blueprint.templated}
    for name, value in (fields | {name: templates.render(value, context) for name, value in others.items()}).items():
        setattr(sensor, name, value)
    return sensor


def _rendered(blueprint: Blueprint, context: Mapping[str, Any]) -> dict[str, Any]:
    arguments = dict(blueprint.arguments)
    for name in blueprint.templated:
        try:
            arguments[name] = encode(templates.render(decode(arguments[name]), context), f"its argument {name}")
        except NotPoolable:
            raise
        except Exception as error:
            raise NotPoolable(
                f"its argument {name} cannot be rendered here: {type(error).__name__}", "rendering"
            ) from error
    return arguments
