"""Whether a rendered sensor can be pooled, and as what: asked on the worker, before anything is registered."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import extensions
from sensorpool.airflow import compat, known, rebuild
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.refusal import NotPoolable
from sensorpool.poke.classes import ADAPTERS
from sensorpool.settings import Settings


@dataclass(frozen=True, slots=True)
class Condition:
    """What a sensor waits for. ``adapted``: an adapter said it, and pokes in the sensor's place."""

    op_classpath: str
    poke_context: dict[str, Any]
    adapted: bool


def condition_of(
    sensor: BaseOperator, context: Mapping[str, Any], settings: Settings, ours: AirflowSettings
) -> Condition:
    """Return what a sensor waits for.

    :raises NotPoolable: with the reason why it runs natively.
    """
    op_classpath = admit(sensor, settings, ours)
    why = known.why_not(type(sensor))
    if why is not None:
        raise NotPoolable(why, "stateful")
    for base in type(sensor).__mro__:
        entry = extensions.named(ADAPTERS).get(f"{base.__module__}.{base.__qualname__}")
        if entry is not None:
            say = getattr(import_module(entry.module), "poke_context_of", None)
            if say is not None:
                return Condition(op_classpath, say(sensor, context), adapted=True)
            break
    return Condition(op_classpath, rebuild.poke_context_of(sensor), adapted=False)


def admit(task: BaseOperator, settings: Settings, ours: AirflowSettings) -> str:
    """Return the class path of a task that the settings admit to the pool.

    :raises NotPoolable: when they do not.
    """
    if compat.is_test_run():
        raise NotPoolable("this is a test run", "test_run")
    if not ours.admits(task.dag_id, task.task_id):
        raise NotPoolable("the patterns of [sensorpool] include and exclude leave it out", "excluded")
    cls = type(task)
    op_classpath = f"{cls.__module__}.{cls.__qualname__}"
    if op_classpath not in settings.sensors_enabled:
        raise NotPoolable(f"{op_classpath} is not in [sensorpool] sensors_enabled", "not_enabled")
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        raise NotPoolable(f"{op_classpath} cannot be imported by that name elsewhere", "not_importable")
    return op_classpath


def ends_directly(sensor: BaseOperator, context: Mapping[str, Any]) -> bool:
    """Whether a success of this task may be written without a worker: only where nothing is skipped by it.

    Airflow's direct path calls no callback, listener or post_execute, makes no asset event, pushes no links and maps
    no dependants.
    """
    return not (
        sensor.on_success_callback
        or sensor.outlets
        or sensor._post_execute_hook is not None
        or compat.has_own(sensor, "post_execute")
        or getattr(sensor, "operator_extra_links", ())
        or getattr(sensor, "multiple_outputs", False)
        or getattr(sensor, "overwrite_rtif_after_execution", False)
        or context.get("map_index_template") is not None
        or next(iter(sensor.iter_mapped_dependants()), None) is not None
        or _has_own_execute(sensor)
        or compat.has_listeners()
    )


def _has_own_execute(sensor: BaseOperator) -> bool:
    """Whether a class brings an `execute` of its own, which may do more once its base's has returned.

    Those of the providers that were read do not, save the ones that `known` names.
    """
    if known.works_afterwards(type(sensor)):
        return True
    for cls in type(sensor).__mro__:
        if cls is BaseSensorOperator:
            return False
        if "execute" in vars(cls) and not known.was_read(cls):
            return True
    return True
