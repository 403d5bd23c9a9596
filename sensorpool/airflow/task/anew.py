"""What a sensor in ``mode="reschedule"`` waits for: natively its DAG file and its templates say it anew at each poke.

A task that leaves its slot takes a digest of its condition along. Where it resumes, what is built and rendered there is
held against that: if it is another condition, what the pool saw is no answer, and the task pokes for itself.
"""

import json
from typing import Any

from jinja2 import Environment, TemplateError, meta

from sensorpool.airflow import compat
from sensorpool.airflow.proof import built
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import poolable
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Ending

NAME = "condition"  # the argument of the resume method
# what a template finds the same as long as a run waits; other names, var among them, may say something else later
_FIXED = frozenset(
    {
        "dag",
        "dag_run",
        "data_interval_end",
        "data_interval_start",
        "ds",
        "ds_nodash",
        "logical_date",
        "params",
        "run_id",
    }
    | {"task", "task_instance_key_str", "ts", "ts_nodash", "ts_nodash_with_tz"}
)
_NO_POKE = (Ending.HANDED_BACK, Ending.CANCELLED)
_jinja = Environment(autoescape=True)


def tell(condition: poolable.Condition) -> dict[str, str]:
    """Return what the resume method is to be called with."""
    return {NAME: _digest(condition)}


def still_for(sensor: Any, context: Any, result: InstanceResult, told: Any) -> InstanceResult:
    """Return what was seen, if the sensor still waits for that; else that it is handed back.

    :param told: by `tell`; None in poke mode, and of the version before.
    """
    if told is None or result.ending in _NO_POKE:
        return result
    try:
        if _digest(poolable.said_of(sensor, context)) == told:
            return result
        why = "it waits for something else now: its DAG file, a template or its constructor says so"
    except Exception as error:
        why = f"whether it still waits for the same cannot be said: {one_line(error)}"
    return InstanceResult.handed_back(f"{why} (the pool saw: {result.ending})")


def may_come(sensor: Any) -> bool:
    """Whether the templates of a sensor may say something else later, as far as their text tells."""
    given = compat.constructor_arguments(sensor)
    names = [name for name in sensor.template_fields if name in given]
    return not all(_is_fixed(given[name], getattr(sensor, name, None)) for name in names)


def _is_fixed(given: Any, now: Any) -> bool:
    """Whether what a DAG file gave is rendered the same until the run ends.

    :param now: as it was rendered.
    """
    if given is now:
        return True
    match given, now:
        case str(), _:
            return given == now or _names_only_fixed(given)
        case (list(), list()) | (tuple(), tuple()):
            return len(given) == len(now) and all(map(_is_fixed, given, now))
        case dict(), dict():
            return given.keys() == now.keys() and all(_is_fixed(given[name], now[name]) for name in given)
    return isinstance(given, int | float) and bool(given == now)


def _names_only_fixed(template: str) -> bool:
    try:
        names = meta.find_undeclared_variables(_jinja.parse(template))
    except TemplateError:
        return False
    return bool(names) and names <= _FIXED


def _digest(condition: poolable.Condition) -> str:
    return built.digest([condition.op_classpath, json.dumps(condition.poke_context, sort_keys=True)])
