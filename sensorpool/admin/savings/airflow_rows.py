"""The statements that read Airflow's metadata database, one DAG at a time. Times are returned as seconds since 1970."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, DateTime, MetaData, String, Table, and_, func, null, or_, select
from sqlalchemy.types import NullType

STARTED = "running"  # the audit log's event of a start; any of the others ends it
ENDED = ("deferred", "up_for_reschedule", "success", "failed", "skipped", "up_for_retry", "awaiting_input")


def _table(name: str, texts: Sequence[str] = (), times: Sequence[str] = (), others: Sequence[str] = ()) -> Table:
    """Return a table with the columns that are read; what Airflow's ids are differs between databases."""
    typed = [Column(each, String()) for each in texts] + [Column(each, DateTime(timezone=True)) for each in times]
    return Table(name, MetaData(), *typed, *(Column(each, NullType()) for each in others))


_KEY = ("dag_id", "task_id", "run_id")
_TIMES = ("start_date", "end_date")
_instance = _table("task_instance", (*_KEY, "state"), _TIMES, ("map_index", "try_number", "trigger_id"))
_history = _table("task_instance_history", (*_KEY, "state"), _TIMES, ("map_index", "try_number"))
_log = _table("log", (*_KEY, "event"), ("dttm",), ("id", "map_index", "try_number"))
_rendered = _table("rendered_task_instance_fields", _KEY, (), ("map_index", "rendered_fields"))
_serialized = _table("serialized_dag", ("dag_id",), ("created_at",), ("data", "data_compressed"))
_run = _table("dag_run", ("dag_id", "run_id"), ("logical_date",))
_trigger = _table("trigger", ("classpath",), (), ("id",))

Key = tuple[str, str, int]
"""Task, run and map index."""
TryKey = tuple[str, str, int, int]


class Part(NamedTuple):
    """The sensors of one DAG.

    :param since: the earliest end of the tries that count.
    """

    dag_id: str
    task_ids: tuple[str, ...]
    since: datetime


class TryRow(NamedTuple):
    """One try; ``trigger`` is the class path of the one in which it waits."""

    key: TryKey
    state: str | None
    start: float | None
    end: float | None
    trigger: str | None


def count_by_task(connection: Connection, since: datetime) -> dict[str, dict[str, int]]:
    """Return by DAG how many instances of each task ended since then, or have not ended."""
    columns = (_instance.c.dag_id, _instance.c.task_id)
    query = select(*columns, func.count()).where(_in_window(since)).group_by(*columns)
    found: dict[str, dict[str, int]] = {}
    for dag_id, task_id, count in connection.execute(query):
        found.setdefault(dag_id, {})[task_id] = count
    return found


def serialized(connection: Connection, dag_id: str) -> tuple[Any, bytes | None]:
    """Return the newest version of a serialized DAG: its data, or its compressed data."""
    c = _serialized.c
    query = select(c.data, c.data_compressed).where(c.dag_id == dag_id).order_by(c.created_at.desc()).limit(1)
    row = connection.execute(query).first()
    return (row[0], row[1]) if row else (None, None)


def tries(connection: Connection, part: Part) -> list[TryRow]:
    """Return the current tries of a DAG, and the earlier ones that ended since its time."""
    current = (
        select(*_tries(_instance), _trigger.c.classpath)
        .select_from(_instance.outerjoin(_trigger, _instance.c.trigger_id == _trigger.c.id))
        .where(*_of(part, _instance), _in_window(part.since))
    )
    earlier = select(*_tries(_history), null()).where(*_of(part, _history), _history.c.end_date >= part.since)
    rows = [*connection.execute(earlier), *connection.execute(current)]
    found = {
        (key := _try_key(*row[:4])): TryRow(key, row[4], _seconds(row[5]), _seconds(row[6]), row[7]) for row in rows
    }
    return list(found.values())


def events(connection: Connection, part: Part) -> list[tuple[TryKey, str, float]]:
    """Return the starts and ends of a DAG's current and earlier tries from the audit log, the oldest first."""
    c = _log.c
    query = (
        select(c.task_id, c.run_id, c.map_index, c.try_number, c.event, c.dttm)
        .select_from(_instance.join(_log, and_(*(_instance.c[name] == c[name] for name in (*_KEY, "map_index")))))
        .where(*_of(part, _instance), _in_window(part.since), c.event.in_((STARTED, *ENDED)), c.dttm.is_not(None))
        .order_by(c.dttm, c.id)
    )
    return [(_try_key(*key), event, _seconds(at) or 0.0) for *key, event, at in connection.execute(query)]


def rendered_fields(connection: Connection, part: Part) -> list[tuple[Key, Any]]:
    """Return the rendered fields of a DAG's task instances, as JSON text or parsed."""
    c = _rendered.c
    query = select(c.task_id, c.run_id, c.map_index, c.rendered_fields).where(*_of(part, _rendered))
    return [((task_id, run_id, int(index)), fields) for task_id, run_id, index, fields in connection.execute(query)]


def logical_dates(connection: Connection, dag_id: str) -> dict[str, float | None]:
    """Return the logical dates of the runs of a DAG."""
    query = select(_run.c.run_id, _run.c.logical_date).where(_run.c.dag_id == dag_id)
    return {run_id: _seconds(date) for run_id, date in connection.execute(query)}


def _in_window(since: datetime) -> Any:
    """The tries that ended since then, and those that have begun and not ended."""
    c = _instance.c
    began = or_(c.start_date.is_not(None), c.trigger_id.is_not(None))
    return or_(c.end_date >= since, and_(c.end_date.is_(None), began))


def _of(part: Part, table: Table) -> list[Any]:
    return [table.c.dag_id == part.dag_id, table.c.task_id.in_(part.task_ids)]


def _tries(table: Table) -> list[Any]:
    names = ("task_id", "run_id", "map_index", "try_number", "state", *_TIMES)
    return [table.c[name] for name in names]


def _try_key(task_id: str, run_id: str, map_index: Any, try_number: Any) -> TryKey:
    return task_id, run_id, int(map_index), int(try_number or 0)


def _seconds(at: datetime | None) -> float | None:
    if at is None:
        return None
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
