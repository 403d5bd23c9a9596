"""The sensors of a DAG as Airflow has serialized it. What the survey does not need, or what is odd, is left out."""

import json
import zlib
from typing import Any

from sensorpool.admin.savings.values import SensorTask


def sensors_in(data: Any, compressed: bytes | None = None) -> dict[str, SensorTask]:
    """Return the sensors of a serialized DAG by their task ids.

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
    defaults = _plain(dag.get("default_args"))
    tasks = dag.get("tasks")
    read = [_sensor(_dict(_plain(each)), _dict(defaults)) for each in tasks] if isinstance(tasks, list) else []
    return {task.task_id: task for task in read if task is not None}


def _sensor(task: dict[str, Any], defaults: dict[str, Any]) -> SensorTask | None:
    task_id, name = task.get("task_id"), task.get("task_type")
    if not (task.get("_is_sensor") and isinstance(task_id, str) and isinstance(name, str)):
        return None
    # Airflow keeps these of a mapped task; of another one only its DAG's defaults tell.
    arguments = {**defaults, **_dict(_plain(task.get("partial_kwargs")))}
    interval, deferrable = _plain(arguments.get("poke_interval")), arguments.get("deferrable")
    return SensorTask(
        task_id,
        f"{task.get('_task_module') or ''}.{name}".lstrip("."),
        bool(task["reschedule"]) if "reschedule" in task else arguments.get("mode") == "reschedule",
        float(interval) if isinstance(interval, int | float) and interval >= 0 else None,
        deferrable if isinstance(deferrable, bool) else None,
        bool(task.get("start_trigger_args")),
        "python_callable_name" in task or "op_args" in (task.get("template_fields") or ()),
    )


def _plain(value: Any) -> Any:
    """Return the value in Airflow's wrapping of a type."""
    return value["__var"] if isinstance(value, dict) and "__var" in value else value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
