"""The condition of a sensor in ``mode="reschedule"``: natively each poke takes it anew from DAG file and templates.

A task that leaves its slot takes a digest of its condition along. When it resumes, the condition that is built and
rendered then is compared with that. If it is another one, the pool's result does not count, and the task pokes itself.
"""

import json
from typing import Any

from jinja2 import Environment, TemplateError, meta

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof.arguments import external_inputs, template_defaults
from sensorpool.airflow.proof.state import value_digest
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import poolable
from sensorpool.airflow.task.poolable import Condition
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Ending

NAME = "condition"  # the argument of the resume method
# names of a template with fixed values while a run waits; the values of other names, of var too, may change
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
_OF_DAG_FILE = "dag_file:"  # begins the digest of a sensor that the pool takes from its DAG file
_NO_POKE = (Ending.HANDED_BACK, Ending.CANCELLED)
_jinja = Environment(autoescape=True)


def resume_arguments(condition: Condition) -> dict[str, Any]:
    """Return arguments for the resume method."""
    return {NAME: _digest(condition)}


def resume_arguments_of_registered(op_classpath: str, poke_context: str) -> dict[str, Any]:
    """Return arguments for the resume method of a sensor that was registered by another process.

    :param poke_context: JSON, as the pool keeps it.
    """
    return resume_arguments(Condition(op_classpath, json.loads(poke_context), adapted=False))


def result_if_unchanged(sensor: Any, context: Any, result: InstanceResult, digest: Any) -> InstanceResult:
    """Return the pool's result if the sensor still has its condition, and else that it is handed back.

    :param digest: of `resume_arguments`; None in poke mode.
    """
    if digest is None or result.ending in _NO_POKE:
        return result
    try:
        of_dag_file = str(digest).startswith(_OF_DAG_FILE)
        if _digest(poolable.condition_again(sensor, context, of_dag_file=of_dag_file)) == digest:
            return result
        why = "it waits for something else now: its DAG file, a template or its constructor says so"
    except Exception as error:
        why = f"it cannot be told whether it still waits for the same: {one_line(error)}"
    return InstanceResult.handed_back(f"{why} (the pool saw: {result.ending})")


def may_change(sensor: Any, condition: Condition) -> bool:
    """Whether a sensor may have another condition later: by its constructor, or by the text of its templates."""
    if condition.of_dag_file or (not condition.adapted and external_inputs.has_digests(condition.poke_context)):
        return True
    given = {**template_defaults.defaults_of(sensor), **operators.constructor_arguments(sensor)}
    names = [name for name in sensor.template_fields if name in given]
    return not all(_is_fixed(given[name], getattr(sensor, name, None)) for name in names)


def _is_fixed(given: Any, now: Any) -> bool:
    """Whether an argument is rendered the same until the run ends.

    :param given: in the DAG file.
    :param now: as rendered.
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


def _digest(condition: Condition) -> str:
    found = value_digest.digest([condition.op_classpath, json.dumps(condition.poke_context, sort_keys=True)])
    return f"{_OF_DAG_FILE}{found}" if condition.of_dag_file else found
