"""What Airflow's records say of a sensor: its arguments, what it waits for, and whether the pool takes its class."""

import hashlib
import json
import zlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sensorpool.config.allowlist import ClassKind, catalog_of

# Their pokes ask for the date of their run, which is no field of theirs.
_OF_THE_RUN = frozenset({"ExternalTaskSensor", "TimeDeltaSensor", "TimeDeltaSensorAsync", "DayOfWeekSensor"})
_HIDDEN = ("Truncated. ", "***")  # what Airflow writes in place of a field that is too long, and of a secret
_OF_A_DAG_FILE = "unusual_prefix_"  # begins Airflow's name for the module of a DAG file


class Taken(StrEnum):
    """Whether the pool takes a class, as far as that is known without the class."""

    BY_DEFAULT = "by default"
    NOT_BY_DEFAULT = "not by default"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class SensorTask:
    """A sensor as Airflow has serialized it.

    :param reschedule: whether its mode is "reschedule".
    :param poke_interval: seconds; None where Airflow does not keep it.
    :param deferrable: None where Airflow does not keep it.
    :param has_callable: whether its condition is a function.
    """

    task_id: str
    op_classpath: str
    reschedule: bool = False
    poke_interval: float | None = None
    deferrable: bool | None = None
    has_callable: bool = False


def sensors_in(data: Any, compressed: bytes | None = None) -> dict[str, SensorTask]:
    """Return the sensors of a serialized DAG by their task ids; what is odd is left out.

    :param data: the column ``data`` of ``serialized_dag``, as JSON text or parsed.
    :param compressed: the column ``data_compressed``, if ``data`` is empty.
    """
    try:
        if data is None and compressed is not None:
            data = zlib.decompress(compressed)
        found = json.loads(data) if isinstance(data, str | bytes) else data
    except (ValueError, zlib.error):
        return {}
    dag = _dict(_dict(found).get("dag"))
    tasks, defaults = dag.get("tasks"), _dict(dag.get("default_args"))
    read = [_sensor(_dict(each), defaults) for each in tasks] if isinstance(tasks, list) else []
    return {task.task_id: task for task in read if task is not None}


def _sensor(task: dict[str, Any], defaults: dict[str, Any]) -> SensorTask | None:
    task_id, name = task.get("task_id"), task.get("task_type")
    if not (task.get("_is_sensor") and isinstance(task_id, str) and isinstance(name, str)):
        return None
    # Airflow keeps these of a mapped task; of another one only its DAG's defaults tell.
    arguments = {**defaults, **_dict(task.get("partial_kwargs"))}
    interval, deferrable = _plain(arguments.get("poke_interval")), arguments.get("deferrable")
    return SensorTask(
        task_id,
        f"{task.get('_task_module') or ''}.{name}".lstrip("."),
        bool(task["reschedule"]) if "reschedule" in task else arguments.get("mode") == "reschedule",
        float(interval) if isinstance(interval, int | float) and interval >= 0 else None,
        deferrable if isinstance(deferrable, bool) else None,
        "python_callable_name" in task or "op_args" in (task.get("template_fields") or ()),
    )


def _plain(value: Any) -> Any:
    """Return the value in Airflow's wrapping of a type."""
    return value["__var"] if isinstance(value, dict) and "__var" in value else value


def _dict(value: Any) -> dict[str, Any]:
    plain = _plain(value)
    return plain if isinstance(plain, dict) else {}


def condition_of(dag_id: str, task: SensorTask, rendered: Any, logical_date: float | None) -> bytes | None:
    """Return a digest of what a task waits for, or None where Airflow's records do not tell.

    :param rendered: its rendered fields, as JSON text or parsed.
    :param logical_date: that of its run.
    """
    try:
        fields = json.loads(rendered) if isinstance(rendered, str | bytes) else rendered
    except ValueError:
        return None
    text = json.dumps(fields, sort_keys=True, default=str)
    if not isinstance(fields, dict) or not fields or any(each in text for each in _HIDDEN):
        return None
    name = task.op_classpath.rpartition(".")[2]
    parts: list[Any] = [task.op_classpath, text]
    if name in _OF_THE_RUN:
        if logical_date is None:
            return None
        parts.append(logical_date)
    if task.has_callable or name.startswith("TimeDelta"):  # not all of their arguments are recorded
        parts += [dag_id, task.task_id]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()


@cache
def taken_of(op_classpath: str) -> Taken:
    """Return whether the pool takes a class by default, as the catalogs of `config.allowlist` say."""
    catalog = catalog_of(op_classpath)
    if catalog is None:
        return Taken.NOT_BY_DEFAULT if op_classpath.startswith(_OF_A_DAG_FILE) else Taken.NOT_KNOWN
    kind = catalog.kind_of(op_classpath)
    if op_classpath in catalog.classes or kind is ClassKind.SENSOR:  # a name of Airflow 2 for a class of the catalog
        return Taken.BY_DEFAULT
    return Taken.NOT_BY_DEFAULT if kind is ClassKind.EXACT else Taken.NOT_KNOWN
