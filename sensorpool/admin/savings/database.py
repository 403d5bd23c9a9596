"""A database that is only read: Airflow's, or that of a pool. Each statement has a time limit."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from sensorpool.errors import SettingsError, Unreachable
from sensorpool.instrumentation.redaction import error_text, hide_password, learn
from sensorpool.store.codes import is_denied

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
_EXTRAS = {"psycopg": "psycopg[binary]", "pymysql": "pymysql"}
_HOW = "write it like postgresql://user:password@host:5432/airflow (in a password @ is %40, / is %2F, # is %23)"
_CONNECT_SECONDS = 10
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock
_TIMED_OUT = ("57014", "3024", "1969")  # what PostgreSQL, MySQL and MariaDB say of a statement that took too long


class ReadOnlyDatabase:
    """A database whose transactions cannot write.

    :param url: as Airflow's ``sql_alchemy_conn``, with any driver.
    :param named: what a person calls it: the option that the URL is from.
    :param statement_seconds: how long one statement may take.
    :raises SettingsError: when the URL is malformed, names another kind of database, or lacks its driver.
    """

    def __init__(self, url: str, named: str, statement_seconds: float) -> None:
        learn(url)
        self._named = named
        self._seconds = statement_seconds
        self._engine = self._made(url)

    @property
    def where(self) -> str:
        """The URL without its password, for people."""
        return hide_password(self._engine.url.render_as_string(hide_password=True).partition("?")[0])

    def read(
        self,
        question: Callable[Concatenate[Connection, Arguments], Result],
        /,
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Call a question with a connection in a transaction of its own, and with the arguments that follow.

        :raises Unreachable: when the database does not answer, refuses, or takes too long.
        """
        with self._explained(), self._engine.begin() as connection:
            return question(connection, *args, **named)

    def columns(self, table: str, schema: str | None = None) -> frozenset[str]:
        """Return the names of a table's columns; none if there is no such table.

        :raises Unreachable: as `read` does.
        """

        def names(connection: Connection) -> frozenset[str]:
            found = inspect(connection)
            if not found.has_table(table, schema=schema):
                return frozenset()
            return frozenset(str(column["name"]) for column in found.get_columns(table, schema=schema))

        return self.read(names)

    @property
    def has_schemas(self) -> bool:
        """Whether tables may stand in a schema of their own."""
        return self._engine.dialect.name == "postgresql"

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            code = str(getattr(error.orig, "sqlstate", None) or next(iter(getattr(error.orig, "args", ())), ""))
            if code in _TIMED_OUT or "interrupted" in str(error.orig):
                raise Unreachable(
                    f"a statement took more than {self._seconds:g} s in {self.where}: "
                    "give it more time by --statement-seconds, or fewer --days"
                ) from error
            lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
            said = hide_password(lines[0])[:200]
            if is_denied(error):
                mend = "its role needs SELECT on the tables that docs/savings.md names"
                raise Unreachable(f"{self._named}: {self.where} refuses: {said}: {mend}") from error
            raise Unreachable(f"{self._named}: {self.where} does not answer: {said}") from error
        except SQLAlchemyError as error:
            raise Unreachable(f"{self._named}: {self.where} does not answer: {error_text(error, 200)}") from error

    def _made(self, url: str) -> Engine:
        parsed = self._parsed(url)
        kind = parsed.get_backend_name()
        if kind == "sqlite":
            return self._sqlite(parsed)
        arguments: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS}
        if kind == "postgresql":
            # prepared statements do not survive PgBouncer in transaction mode
            arguments |= {"prepare_threshold": None, "client_encoding": "utf8"}
        else:
            arguments |= {"charset": "utf8mb4", "read_timeout": int(self._seconds) + _CONNECT_SECONDS}
        try:
            engine = create_engine(parsed, connect_args=arguments, pool_size=1, max_overflow=0)
        except ModuleNotFoundError as error:
            mend = f'pip install "{_EXTRAS.get(str(error.name), error.name)}"'
            raise SettingsError(f"{self._named} needs the driver {error.name}: {mend}") from None
        if kind == "postgresql":
            event.listen(engine, "begin", self._begin_postgresql)
        else:
            event.listen(engine, "connect", self._connect_mysql)
        return engine

    def _parsed(self, url: str) -> URL:
        try:
            parsed = make_url(url)
            scheme = parsed.drivername.partition("+")[0]
            kind = "postgresql" if scheme.startswith("postgres") else scheme
        except (ArgumentError, ValueError):
            raise SettingsError(f"{self._named} cannot be read: {_HOW}") from None
        if kind == "sqlite":
            return parsed.set(drivername=kind)
        if kind not in _DRIVERS:
            raise SettingsError(f"{self._named} names no database of Airflow's (PostgreSQL, MySQL, SQLite): {_HOW}")
        return parsed.set(drivername=f"{kind}+{_DRIVERS[kind]}")

    def _begin_postgresql(self, connection: Connection) -> None:
        # for the transaction only: a session's settings would stay with PgBouncer's next client
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(self._seconds * 1000)}")
        # pages are found by indexes, and Airflow's server has other work than to read in parallel for this
        connection.exec_driver_sql("SET LOCAL max_parallel_workers_per_gather = 0")
        connection.exec_driver_sql("SET LOCAL random_page_cost = 1.1")

    def _connect_mysql(self, connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
            cursor.execute("SET SESSION time_zone = '+00:00'")  # Airflow's times are UTC
            if "mariadb" in str(connection.get_server_info()).lower():
                cursor.execute(f"SET SESSION max_statement_time = {self._seconds:g}")
            else:
                cursor.execute(f"SET SESSION max_execution_time = {int(self._seconds * 1000)}")
        connection.commit()

    def _sqlite(self, parsed: URL) -> Engine:
        path = Path(parsed.database or "")
        if not path.is_file():
            raise SettingsError(f"{self._named}: there is no file {path}" if parsed.database else _no_file(self._named))
        name = f"file:{quote(str(path.absolute()))}?mode=ro"
        engine = create_engine(
            parsed.set(query={}),
            creator=lambda: sqlite3.connect(name, uri=True, timeout=_CONNECT_SECONDS, check_same_thread=False),
            poolclass=NullPool,
        )
        event.listen(engine, "before_cursor_execute", self._bound_sqlite)
        return engine

    def _bound_sqlite(self, connection: Connection, *_: Any) -> None:
        end = time.monotonic() + self._seconds
        raw = connection.connection.driver_connection
        if isinstance(raw, sqlite3.Connection):
            raw.set_progress_handler(lambda: time.monotonic() > end, _STEPS)


def _no_file(named: str) -> str:
    return f"{named} names no file: write it like sqlite:////path/to/airflow.db"
