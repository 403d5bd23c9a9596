"""Airflow's database, which is only read. Each statement has a time limit."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from sensorpool.errors import SchemaMismatch, SettingsError, Unreachable
from sensorpool.instrumentation.redaction import learn
from sensorpool.store import database_errors
from sensorpool.store.database_errors import is_missing_column, is_missing_table

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
_HOW = "write it like postgresql://user:password@host:5432/airflow (in a password @ is %40, / is %2F, # is %23)"
_CONNECT_SECONDS = 10
_SECONDS = 120  # for one statement; SQLite has no such limit
_TIMED_OUT = {"57014", 3024, 1969}  # what PostgreSQL, MySQL and MariaDB say of a statement that took too long


class ReadOnlyDatabase:
    """A database whose transactions cannot write.

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

    def read(
        self,
        question: Callable[Concatenate[Connection, Arguments], Result],
        /,
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Call a question with a connection in a transaction of its own, and with the arguments that follow.

        :raises SchemaMismatch: when a table or a column is missing.
        :raises Unreachable: when the database does not answer, refuses, or takes too long.
        """
        try:
            with self._engine.begin() as connection:
                return question(connection, *args, **named)
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
    scheme = parsed.drivername.partition("+")[0]
    kind = "postgresql" if scheme.startswith("postgres") else scheme
    if kind == "sqlite":
        if not (parsed.database and Path(parsed.database).is_file()):
            raise SettingsError(
                f"--airflow-db: there is no file {parsed.database}: name it like sqlite:////path/to/x.db"
            )
        name = f"file:{quote(str(Path(parsed.database).absolute()))}?mode=ro"
        parsed = parsed.set(drivername=kind, query={})
        return create_engine(parsed, creator=lambda: sqlite3.connect(name, uri=True, timeout=_CONNECT_SECONDS))
    if kind not in _DRIVERS:
        raise SettingsError(f"--airflow-db names no database of Airflow's (PostgreSQL, MySQL, SQLite): {_HOW}")
    is_postgres = kind == "postgresql"
    # prepared statements do not survive PgBouncer in transaction mode
    more = {"prepare_threshold": None, "client_encoding": "utf8"} if is_postgres else {"charset": "utf8mb4"}
    try:
        parsed = parsed.set(drivername=f"{kind}+{_DRIVERS[kind]}")
        engine = create_engine(parsed, connect_args={"connect_timeout": _CONNECT_SECONDS} | more)
    except ModuleNotFoundError as error:
        raise SettingsError(f"--airflow-db needs the driver {error.name}: pip install {error.name}") from None
    event.listen(engine, "begin", _begin_postgresql) if is_postgres else event.listen(engine, "connect", _connect_mysql)
    return engine


def _begin_postgresql(connection: Connection) -> None:
    # for the transaction only: a session's settings would stay with PgBouncer's next client
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {_SECONDS * 1000}")


def _connect_mysql(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
        cursor.execute("SET SESSION time_zone = '+00:00'")  # Airflow's times are UTC
        is_mariadb = "mariadb" in str(connection.get_server_info()).lower()
        limit = f"max_statement_time = {_SECONDS}" if is_mariadb else f"max_execution_time = {_SECONDS * 1000}"
        cursor.execute(f"SET SESSION {limit}")
    connection.commit()
