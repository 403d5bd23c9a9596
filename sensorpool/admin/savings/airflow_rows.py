"""The statements that read Airflow's metadata database. Their pages are parts of one DAG, so memory is bounded."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    FromClause,
    MetaData,
    String,
    Table,
    and_,
    case,
    func,
    null,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import Float, NullType

PAGE = 20_000  # task instances
STARTED = "running"  # the audit log's event of a start; any of the others ends it
ENDED = ("deferred", "up_for_reschedule", "success", "failed", "skipped", "up_for_retry", "awaiting_input")


class seconds_of(GenericFunction[float]):  # the name of an SQL function
    """A point in time as seconds since 1970 UTC."""

    type = Float()
    inherit_cache = True


@compiles(seconds_of, "postgresql")
def _seconds_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return f"CAST(extract(epoch FROM {compiler.process(element.clauses, **kw)}) AS double precision)"


@compiles(seconds_of, "mysql")
@compiles(seconds_of, "mariadb")
def _seconds_mysql(element: Any, compiler: Any, **kw: Any) -> str:
    return f"(timestampdiff(MICROSECOND, '1970-01-01 00:00:00', {compiler.process(element.clauses, **kw)}) / 1e6)"


@compiles(seconds_of, "sqlite")
def _seconds_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return f"((julianday({compiler.process(element.clauses, **kw)}) - 2440587.5) * 86400.0)"


_TIME = DateTime(timezone=True)
_KEY = ("dag_id", "task_id", "run_id", "map_index")


def _table(name: str, texts: Sequence[str] = (), times: Sequence[str] = (), others: Sequence[str] = ()) -> Table:
    """Return a table with the columns that are read; what Airflow's ids are differs between databases."""
    typed = [Column(each, String()) for each in texts] + [Column(each, _TIME) for each in times]
    return Table(name, MetaData(), *typed, *(Column(each, NullType()) for each in others))


_instance = _table(
    "task_instance",
    ("dag_id", "task_id", "run_id", "state", "operator"),
    ("start_date", "end_date"),
    ("id", "map_index", "try_number", "trigger_id"),
)
_history = _table(
    "task_instance_history",
    ("dag_id", "task_id", "run_id", "state"),
    ("start_date", "end_date"),
    ("map_index", "try_number"),
)
_reschedule = _table("task_reschedule", (), ("end_date", "reschedule_date"), ("ti_id",))
_log = _table("log", ("dag_id", "task_id", "run_id", "event"), ("dttm",), ("map_index", "try_number"))
_rendered = _table(
    "rendered_task_instance_fields", ("dag_id", "task_id", "run_id"), (), ("map_index", "rendered_fields")
)
_serialized = _table("serialized_dag", ("dag_id",), ("created_at",), ("id", "data", "data_compressed"))
_run = _table("dag_run", ("dag_id", "run_id"), ("logical_date",))
_trigger = _table("trigger", ("classpath",), (), ("id",))

NEEDED = {
    table.name: frozenset(column.name for column in table.columns) for table in (_instance, _serialized, _trigger)
}
WANTED = {
    table.name: frozenset(column.name for column in table.columns)
    for table in (_history, _reschedule, _log, _rendered, _run)
}


class Page(NamedTuple):
    """Sensors of one DAG, and some of its runs, or all.

    :param since: the earliest end of the tries that count.
    """

    dag_id: str
    task_ids: tuple[str, ...]
    since: datetime
    runs: tuple[str, str] | None = None  # the first and the last, in the database's own order


Key = tuple[str, str, int]
TryKey = tuple[str, str, int, int]


class InstanceRow(NamedTuple):
    """One try. Times are seconds since 1970."""

    key: Key
    try_number: int
    state: str | None
    start: float | None
    end: float | None
    trigger: str | None = None


class Starts(NamedTuple):
    """What the audit log has of a try. The sums are those of seconds since 1970."""

    starts: int
    ends: int
    started: float
    ended: float
    first: float
    deferrals: int
    reschedules: int


class Reschedules(NamedTuple):
    """How often the current try has been rescheduled, when for the first time, and the seconds it was told to wait."""

    times: int
    first: float
    pauses: float


def count_by_task(connection: Connection, since: datetime) -> list[tuple[str, str, str, int]]:
    """Return DAG, task, operator and number of the task instances that ended since then, or have not ended."""
    columns = (_instance.c.dag_id, _instance.c.task_id, _instance.c.operator)
    query = select(*columns, func.count()).where(_in_window(_instance, since)).group_by(*columns)
    return [(dag_id, task_id, operator or "", count) for dag_id, task_id, operator, count in connection.execute(query)]


def serialized_ids(connection: Connection) -> dict[str, list[Any]]:
    """Return the ids of the serialized versions of each DAG, the newest first."""
    found: dict[str, list[Any]] = {}
    query = select(_serialized.c.dag_id, _serialized.c.id).order_by(_serialized.c.created_at.desc())
    for dag_id, row_id in connection.execute(query):
        found.setdefault(dag_id, []).append(row_id)
    return found


def serialized(connection: Connection, row_id: Any) -> tuple[Any, bytes | None]:
    """Return a serialized DAG: its data, or its compressed data."""
    row = connection.execute(
        select(_serialized.c.data, _serialized.c.data_compressed).where(_serialized.c.id == row_id)
    ).first()
    return (row[0], row[1]) if row else (None, None)


def run_ranges(connection: Connection, page: Page) -> list[tuple[str, str]]:
    """Return the first and last run of each part of a task with more rows than a page has."""
    query = (
        select(_instance.c.run_id, func.count())
        .where(*_of(page, _instance), _in_window(_instance, page.since))
        .group_by(_instance.c.run_id)
        .order_by(_instance.c.run_id)
    )
    found: list[tuple[str, str]] = []
    rows = PAGE
    for run_id, count in connection.execute(query):
        if rows + count > PAGE:
            found.append((run_id, run_id))
            rows = 0
        found[-1] = (found[-1][0], run_id)
        rows += count
    return found


def instances(connection: Connection, page: Page) -> Iterator[InstanceRow]:
    """Yield the current tries of a page, with the trigger that each waits in."""
    query = (
        select(*_tries(_instance), _trigger.c.classpath)
        .select_from(_instance.outerjoin(_trigger, _instance.c.trigger_id == _trigger.c.id))
        .where(*_of(page, _instance), _in_window(_instance, page.since))
    )
    return (_row(each) for each in connection.execute(query).all())


def earlier_tries(connection: Connection, page: Page) -> Iterator[InstanceRow]:
    """Yield the earlier tries of a page that ended since its time."""
    query = select(*_tries(_history), null()).where(*_of(page, _history), _history.c.end_date >= page.since)
    return (_row(each) for each in connection.execute(query).all())


def starts(connection: Connection, page: Page) -> dict[TryKey, Starts]:
    """Return what the audit log has of the tries of a page."""
    moment = seconds_of(_log.c.dttm)
    begins, is_end = _log.c.event == STARTED, _log.c.event.in_(ENDED)
    key = (_log.c.task_id, _log.c.run_id, _log.c.map_index, _log.c.try_number)
    query = (
        select(
            *key,
            _count_if(begins),
            _count_if(is_end),
            func.sum(case((begins, moment), else_=0.0)),
            func.sum(case((is_end, moment), else_=0.0)),
            func.min(case((begins, moment))),
            _count_if(_log.c.event == "deferred"),
            _count_if(_log.c.event == "up_for_reschedule"),
        )
        .select_from(_instance.join(_log, and_(*(_instance.c[name] == _log.c[name] for name in _KEY))))
        .where(
            *_of(page, _instance),
            _in_window(_instance, page.since),
            _log.c.event.in_((STARTED, *ENDED)),
            _log.c.dttm.is_not(None),
        )
        .group_by(*key)
    )
    return {
        (task_id, run_id, int(map_index), int(try_number or 0)): Starts(
            int(begun), int(over), float(started), float(ended), float(first), int(deferrals), int(reschedules)
        )
        for task_id, run_id, map_index, try_number, begun, over, started, ended, first, deferrals, reschedules in (
            connection.execute(query).all()
        )
        if begun
    }


def reschedules(connection: Connection, page: Page) -> dict[Key, Reschedules]:
    """Return how the current tries of a page were rescheduled. Airflow deletes the rows of earlier tries."""
    end = seconds_of(_reschedule.c.end_date)
    key = (_instance.c.task_id, _instance.c.run_id, _instance.c.map_index)
    query = (
        select(*key, func.count(), func.min(end), func.sum(seconds_of(_reschedule.c.reschedule_date) - end))
        .select_from(_instance.join(_reschedule, _instance.c.id == _reschedule.c.ti_id))
        .where(*_of(page, _instance), _in_window(_instance, page.since))
        .group_by(*key)
    )
    return {
        (task_id, run_id, int(map_index)): Reschedules(int(count), float(first), float(pauses))
        for task_id, run_id, map_index, count, first, pauses in connection.execute(query).all()
    }


def rendered_fields(connection: Connection, page: Page) -> Iterator[tuple[Key, Any]]:
    """Yield the rendered fields of a page's task instances, as JSON text or parsed."""
    query = select(_rendered.c.task_id, _rendered.c.run_id, _rendered.c.map_index, _rendered.c.rendered_fields).where(
        *_of(page, _rendered)
    )
    return (
        ((task_id, run_id, int(map_index)), fields)
        for task_id, run_id, map_index, fields in connection.execute(query).all()
    )


def logical_dates(connection: Connection, page: Page) -> dict[str, float]:
    """Return the logical dates of the runs of a page."""
    conditions = [_run.c.dag_id == page.dag_id, _run.c.logical_date.is_not(None)]
    if page.runs is not None:
        conditions.append(_run.c.run_id.between(*page.runs))
    query = select(_run.c.run_id, seconds_of(_run.c.logical_date)).where(*conditions)
    return {run_id: float(date) for run_id, date in connection.execute(query).all()}


def _in_window(table: Table, since: datetime) -> Any:
    """The tries that ended since then, and those that have begun and not ended."""
    began = or_(table.c.start_date.is_not(None), table.c.trigger_id.is_not(None))
    return or_(table.c.end_date >= since, and_(table.c.end_date.is_(None), began))


def _of(page: Page, table: Table) -> list[Any]:
    conditions = [table.c.dag_id == page.dag_id, table.c.task_id.in_(page.task_ids)]
    if page.runs is not None:
        conditions.append(table.c.run_id.between(*page.runs))
    return conditions


def _tries(table: FromClause) -> tuple[Any, ...]:
    columns = table.c
    times = (seconds_of(columns.start_date), seconds_of(columns.end_date))
    return (columns.task_id, columns.run_id, columns.map_index, columns.try_number, columns.state, *times)


def _row(row: Any) -> InstanceRow:
    task_id, run_id, map_index, try_number, state, start, end, trigger = row
    return InstanceRow(
        (task_id, run_id, int(map_index)), int(try_number or 0), state, _float(start), _float(end), trigger
    )


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _count_if(condition: Any) -> Any:
    return func.sum(case((condition, 1), else_=0))
