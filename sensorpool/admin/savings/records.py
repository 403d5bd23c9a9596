"""What Airflow's records say of a sensor, and of its tries.

Of a sensor: its arguments, what it waits for, and whether the pool takes its class. Of a try: how it waited, for how
long, how often it was started, and how long it held a slot.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from sensorpool.admin.savings.airflow_database import STARTED, TryKey, TryRow
from sensorpool.admin.savings.estimate import Mode, SensorTry
from sensorpool.config.allowlist import ClassKind, catalog_of

# Their pokes ask for the date of their run, which is no field of theirs.
_OF_THE_RUN = frozenset({"ExternalTaskSensor", "TimeDeltaSensor", "TimeDeltaSensorAsync", "DayOfWeekSensor"})
_HIDDEN = ("Truncated. ", "***")  # what Airflow writes in place of a field that is too long, and of a secret
_OF_A_DAG_FILE = "unusual_prefix_"  # begins Airflow's name for the module of a DAG file
_OURS = "sensorpool."  # begins the class paths of our triggers
_OVER = frozenset({"success", "failed", "skipped", "up_for_retry", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({None, "scheduled", "queued", "restarting"})
_SKIPPED = frozenset({"skipped", "upstream_failed", "removed"})  # Airflow sets both dates of what never ran
_MOMENT = 0.001  # seconds


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


@dataclass(slots=True)
class Logged:
    """What the audit log has of a try.

    :param running_since: the start without an end; None if there is none.
    :param waits: how often it was deferred, or rescheduled, by that event.
    """

    first: float
    starts: int = 0
    held: float = 0.0
    running_since: float | None = None
    waits: Counter[str] = field(default_factory=Counter)


def logged(events: Iterable[tuple[TryKey, str, float]]) -> dict[TryKey, Logged]:
    """Return what the audit log has of each try that it saw start.

    :param events: the oldest first.
    """
    found: dict[TryKey, Logged] = {}
    for key, event, at in events:
        if event == STARTED:
            seen = found.setdefault(key, Logged(at))
            seen.starts, seen.running_since = seen.starts + 1, at
        elif key in found and (since := found[key].running_since) is not None:
            seen = found[key]
            seen.held, seen.running_since = seen.held + at - since, None
            seen.waits[event] += 1
    return found


@dataclass(frozen=True)
class TryReader:
    """Reads tries, and counts what is not known of them.

    :param now: seconds since 1970: tries that have not ended count up to then.
    :param poke_interval: seconds between two pokes where Airflow does not keep them.
    """

    now: float
    poke_interval: float
    unknown: Counter[str]

    def read(
        self, dag_id: str, task: SensorTask, row: TryRow, seen: Logged | None, condition: bytes | None
    ) -> SensorTry | None:
        """Return a try, or None if it has not begun.

        Without the audit log, a try in mode "reschedule" counts as its last start alone.
        """
        if seen is None and (row.start is None or _has_not_begun(row)):
            return None
        ended = row.end if row.state in _OVER and row.end is not None else self.now
        mode = _mode(task, row, seen)
        if seen is None:
            seen = self._inferred(row, mode, ended)
        elif seen.running_since is not None:
            seen.held += max(ended - seen.running_since, 0.0)
        ended = max(ended, seen.first)
        interval = self._interval(task, mode, seen.starts, ended - seen.first)
        return SensorTry(
            dag_id, task.op_classpath, mode, seen.starts, seen.first, ended, seen.held, interval, condition
        )

    def _inferred(self, row: TryRow, mode: Mode, ended: float) -> Logged:
        self.unknown["starts"] += 1
        start = ended if row.start is None else row.start
        if mode is Mode.DEFERRED or row.state == "up_for_reschedule":
            return Logged(start, starts=2 if mode is Mode.DEFERRED and row.state in _OVER else 1)
        return Logged(start, starts=1, held=max(ended - start, 0.0))

    def _interval(self, task: SensorTask, mode: Mode, starts: int, waited: float) -> float:
        if mode is Mode.RESCHEDULE and starts > 1:
            return waited / (starts - 1)
        if task.poke_interval is not None:
            return task.poke_interval
        self.unknown["interval"] += mode is Mode.POKE
        return self.poke_interval


def _has_not_begun(row: TryRow) -> bool:
    if row.state in _NOT_BEGUN:
        return row.trigger is None  # its dates are those of the try before
    return row.state in _SKIPPED and abs((row.end or 0.0) - (row.start or 0.0)) < _MOMENT


def _mode(task: SensorTask, row: TryRow, seen: Logged | None) -> Mode:
    if row.trigger is not None:
        return Mode.POOLED if row.trigger.startswith(_OURS) else Mode.DEFERRED
    if seen is not None and seen.waits["deferred"]:
        return Mode.DEFERRED
    if task.reschedule or (seen is not None and seen.waits["up_for_reschedule"]):
        return Mode.RESCHEDULE
    return Mode.DEFERRED if seen is None and task.deferrable else Mode.POKE
