"""Airflow's metadata database, which is only read, one DAG at a time. Times are returned as seconds since 1970."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.types import NullType

from sensorpool.errors import SchemaMismatch, SettingsError, Unreachable
from sensorpool.instrumentation.redaction import learn
from sensorpool.store import database_errors
from sensorpool.store.database_errors import is_missing_column, is_missing_table

Result = TypeVar("Result")

_HOW = "write it like postgresql://user:password@host:5432/airflow (in a password @ is %40, / is %2F, # is %23)"
_CONNECT_SECONDS = 10
_SECONDS = 120  # for one statement; SQLite has no such limit
_TIMED_OUT = {"57014", 2013}  # what PostgreSQL, and the driver of MySQL, say of a statement that took too long

STARTED = "running"  # the audit log's event of a start; any of the others ends it
ENDED = ("deferred", "up_for_reschedule", "success", "failed", "skipped", "up_for_retry", "awaiting_input")


class ReadOnlyDatabase:
    """A database whose transactions cannot write. Each statement has a time limit.

    :param url: as Airflow's ``sql_alchemy_conn``, with any driver.
    :raises SettingsError: when the URL is malformed, names another kind of database, or lacks its driver.
    """

    def __init__(self, url: str) -> None:
        learn(url)
        self._engine = _made(url)

    @property
    def where(self) -> str:
        """The URL without its password, for people."""
        return database_errors.where(self._engine).partition("?")[0]

    def read(self, question: Callable[..., Result], /, *args: Any) -> Result:
        """Call a question with a connection in a transaction of its own, and with the arguments that follow.

        :raises SchemaMismatch: when a table or a column is missing.
        :raises Unreachable: when the database does not answer, refuses, or takes too long.
        """
        try:
            with self._engine.begin() as connection:
                return question(connection, *args)
        except SQLAlchemyError as error:
            driver = getattr(error, "orig", None)
            if is_missing_table(error) or is_missing_column(error):
                what = str(driver).partition("\n")[0][:200]
                raise SchemaMismatch(f"{self.where} is no metadata database of Airflow 3: {what}") from error
            if _TIMED_OUT & {getattr(driver, "sqlstate", None), *getattr(driver, "args", ())}:
                said = f"a statement took more than {_SECONDS} s in {self.where}: survey fewer --days"
                raise Unreachable(said) from error
            raise Unreachable(f"--airflow-db: {database_errors.unreachable(self._engine, error)}") from error

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()


def _made(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError(f"--airflow-db cannot be read: {_HOW}") from None
    match parsed.drivername.partition("+")[0]:
        case "sqlite":
            if not (parsed.database and Path(parsed.database).is_file()):
                said = f"there is no file {parsed.database}: name it like sqlite:////path/to/x.db"
                raise SettingsError(f"--airflow-db: {said}")
            name = f"file:{quote(str(Path(parsed.database).absolute()))}?mode=ro"
            parsed = parsed.set(drivername="sqlite", query={})
            return sa.create_engine(parsed, creator=lambda: sqlite3.connect(name, uri=True, timeout=_CONNECT_SECONDS))
        case "postgresql" | "postgres":
            parsed = parsed.set(drivername="postgresql+psycopg")
            # PgBouncer in transaction mode keeps neither prepared statements nor settings of a session apart
            options: dict[str, Any] = {
                "connect_timeout": _CONNECT_SECONDS,
                "prepare_threshold": None,
                "client_encoding": "utf8",
            }
            begin = ["SET TRANSACTION READ ONLY", f"SET LOCAL statement_timeout = {_SECONDS * 1000}"]
        case "mysql" | "mariadb" as kind:
            parsed = parsed.set(drivername=f"{kind}+pymysql")
            utc = "SET time_zone = '+00:00'"  # as Airflow's times are
            options = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _SECONDS, "init_command": utc}
            options["charset"] = "utf8mb4"
            # in a transaction that is begun read-only, MariaDB creates tables all the same
            begin = ["SET SESSION TRANSACTION READ ONLY"]
        case _:
            raise SettingsError(f"--airflow-db names no database of Airflow's (PostgreSQL, MySQL, SQLite): {_HOW}")
    try:
        engine = sa.create_engine(parsed, connect_args=options)
    except ModuleNotFoundError as error:
        raise SettingsError(f"--airflow-db needs the driver {error.name}: pip install {error.name}") from None
    sa.event.listen(engine, "begin", lambda connection: [connection.exec_driver_sql(each) for each in begin])
    return engine


def _table(name: str, texts: Sequence[str] = (), times: Sequence[str] = (), others: Sequence[str] = ()) -> Table:
    """Return a table with the columns that are read; what Airflow's ids are differs between databases."""
    typed = [sa.Column(each, sa.String()) for each in texts] + [
        sa.Column(each, sa.DateTime(timezone=True)) for each in times
    ]
    return Table(name, sa.MetaData(), *typed, *(sa.Column(each, NullType()) for each in others))


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
    query = sa.select(*columns, sa.func.count()).where(_in_window(since)).group_by(*columns)
    found: dict[str, dict[str, int]] = {}
    for dag_id, task_id, count in connection.execute(query):
        found.setdefault(dag_id, {})[task_id] = count
    return found


def serialized(connection: Connection, dag_id: str) -> tuple[Any, bytes | None]:
    """Return the newest version of a serialized DAG: its data, or its compressed data."""
    c = _serialized.c
    query = sa.select(c.data, c.data_compressed).where(c.dag_id == dag_id).order_by(c.created_at.desc()).limit(1)
    row = connection.execute(query).first()
    return (row[0], row[1]) if row else (None, None)


def tries(connection: Connection, part: Part) -> list[TryRow]:
    """Return the current tries of a DAG, and the earlier ones that ended since its time."""
    current = (
        sa.select(*_tries(_instance), _trigger.c.classpath)
        .select_from(_instance.outerjoin(_trigger, _instance.c.trigger_id == _trigger.c.id))
        .where(*_of(part, _instance), _in_window(part.since))
    )
    earlier = sa.select(*_tries(_history), sa.null()).where(*_of(part, _history), _history.c.end_date >= part.since)
    rows = [*connection.execute(earlier), *connection.execute(current)]
    found = {
        (key := _try_key(*row[:4])): TryRow(key, row[4], _seconds(row[5]), _seconds(row[6]), row[7]) for row in rows
    }
    return list(found.values())


def events(connection: Connection, part: Part) -> list[tuple[TryKey, str, float]]:
    """Return the starts and ends of a DAG's current and earlier tries from the audit log, the oldest first."""
    c = _log.c
    query = (
        sa.select(c.task_id, c.run_id, c.map_index, c.try_number, c.event, c.dttm)
        .select_from(_instance.join(_log, sa.and_(*(_instance.c[name] == c[name] for name in (*_KEY, "map_index")))))
        .where(*_of(part, _instance), _in_window(part.since), c.event.in_((STARTED, *ENDED)), c.dttm.is_not(None))
        .order_by(c.dttm, c.id)
    )
    return [(_try_key(*key), event, _seconds(at) or 0.0) for *key, event, at in connection.execute(query)]


def rendered_fields(connection: Connection, part: Part) -> list[tuple[Key, Any]]:
    """Return the rendered fields of a DAG's task instances, as JSON text or parsed."""
    c = _rendered.c
    query = sa.select(c.task_id, c.run_id, c.map_index, c.rendered_fields).where(*_of(part, _rendered))
    return [((task_id, run_id, int(index)), fields) for task_id, run_id, index, fields in connection.execute(query)]


def logical_dates(connection: Connection, dag_id: str) -> dict[str, float | None]:
    """Return the logical dates of the runs of a DAG."""
    query = sa.select(_run.c.run_id, _run.c.logical_date).where(_run.c.dag_id == dag_id)
    return {run_id: _seconds(date) for run_id, date in connection.execute(query)}


def _in_window(since: datetime) -> Any:
    """The tries that ended since then, and those that have begun and not ended."""
    c = _instance.c
    began = sa.or_(c.start_date.is_not(None), c.trigger_id.is_not(None))
    return sa.or_(c.end_date >= since, sa.and_(c.end_date.is_(None), began))


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
