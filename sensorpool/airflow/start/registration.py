"""The registration of a sensor that starts without a worker: its templates rendered, and its proof made again."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sensorpool.airflow.compat import secrets_masker
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.codec import decode, encode
from sensorpool.airflow.proof.watch import environment_reads
from sensorpool.airflow.start import templates
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import saved_attributes
from sensorpool.airflow.task.deferral import airflow_settings
from sensorpool.airflow.task.poolable import unchecked_condition_of
from sensorpool.client.pool import Pool
from sensorpool.client.validate import CheckedRegistration
from sensorpool.config import allowlist
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
    if not airflow_settings().admits(key.dag_id, key.task_id):
        raise NotPoolable("the patterns of [sensorpool] include and exclude leave it out", "excluded")
    if blueprint.op_classpath not in allowlist.of(pool.settings.sensors_enabled):
        raise NotPoolable(f"{blueprint.op_classpath} is not in [sensorpool] sensors_enabled", "not_enabled")
    module, _, name = blueprint.op_classpath.rpartition(".")
    cls = getattr(import_module(module), name)
    sensor = rebuild.rebuild(cls, _rendered(blueprint, context))
    for name in _OF_WAIT:
        setattr(sensor, name, getattr(blueprint, name))
    condition = unchecked_condition_of(sensor, context)
    if not condition.adapted and (why := environment_reads.reason_against(sensor)) is not None:
        raise NotPoolable(why, "needs_worker")
    if secrets_masker.holds_secret(condition.poke_context):
        raise NotPoolable("one of its arguments holds a secret, and the pool keeps arguments", "secret")
    registration = Registration(
        sensor=condition.op_classpath,
        poke_context=condition.poke_context,
        key=key,
        poke_interval=blueprint.poke_interval,
        timeout=blueprint.timeout,
        soft_fail=blueprint.soft_fail,
        silent_fail=blueprint.silent_fail,
        never_fail=blueprint.never_fail,
        exponential_backoff=blueprint.exponential_backoff,
        max_wait=blueprint.max_wait,
        external_id=external_id,
        logical_date=context.get("logical_date"),
    )
    return Prepared(pool.check(registration, try_out=False), saved_attributes.save(sensor))


def _rendered(blueprint: Blueprint, context: Mapping[str, Any]) -> dict[str, Any]:
    arguments = dict(blueprint.arguments)
    for name in blueprint.templated:
        try:
            arguments[name] = encode(templates.render(decode(arguments[name]), context), f"its argument {name}")
        except NotPoolable:
            raise
        except Exception as error:
            raise NotPoolable(
                f"its argument {name} cannot be rendered here: {type(error).__name__}", "start"
            ) from error
    return arguments
