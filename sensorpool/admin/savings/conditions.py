"""What a sensor waits for, by the fields that Airflow has rendered: a digest that is equal where the wait is."""

import hashlib
import json
from typing import Any

from sensorpool.admin.savings.values import SensorTask

# Their pokes ask for the date of their run, which is no field of theirs.
OF_THE_RUN = frozenset({"ExternalTaskSensor", "TimeDeltaSensor", "TimeDeltaSensorAsync", "DayOfWeekSensor"})
_CUT = "Truncated. "  # what Airflow writes in place of a field that is too long
_MASK = "***"  # what Airflow writes in place of a secret


def asks_for_the_run(task: SensorTask) -> bool:
    """Whether the condition of a task depends on the logical date of its run."""
    return task.op_classpath.rpartition(".")[2] in OF_THE_RUN


def condition_of(dag_id: str, task: SensorTask, rendered: Any, logical_date: float | None) -> bytes | None:
    """Return a digest of what a task waits for, or None where Airflow's records do not tell.

    A function among the arguments is not recorded, nor is each argument of ``TimeDeltaSensor``: these are equal within
    one task only. A field that Airflow has cut or masked may hide a difference.

    :param rendered: its rendered fields, as JSON text or parsed.
    :param logical_date: that of its run, if its class `asks_for_the_run`.
    """
    try:
        fields = json.loads(rendered) if isinstance(rendered, str | bytes) else rendered
    except ValueError:
        return None
    if not isinstance(fields, dict) or not fields:
        return None
    text = json.dumps(fields, sort_keys=True, default=str)
    if _CUT in text or _MASK in text:
        return None
    parts: list[Any] = [task.op_classpath, text]
    if asks_for_the_run(task):
        if logical_date is None:
            return None
        parts.append(logical_date)
    if task.has_callable or task.op_classpath.rpartition(".")[2].startswith("TimeDelta"):
        parts += [dag_id, task.task_id]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()
