"""A database: its transactions, and its clock."""

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sensorpool.errors import Unreachable
from sensorpool.instrumentation import forks
from sensorpool.model.values import Milliseconds
from sensorpool.store import database_errors
from sensorpool.store.database_errors import is_locked, is_unreachable
from sensorpool.store.dialects import clock_question
from sensorpool.store.engine import make_engine, refuse_missing_file
from sensorpool.store.transaction import ATTEMPTS, Transaction

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

POOL_SIZE = 5  # connections that stay open

_READ_ONLY = {
    "postgresql": "SELECT current_setting('transaction_read_only') = 'on'",
    "mysql": "SELECT CAST(@@read_only AS char) NOT IN ('0', 'OFF')",
    "mariadb": "SELECT CAST(@@read_only AS char) NOT IN ('0', 'OFF')",
}


class DatabaseSettings(Protocol):
    """Settings that name a database."""

    @property
    def database_url(self) -> str: ...

    @property
    def database_schema(self) -> str: ...


class Database:
    """One engine. Safe to share between threads; a child after a fork makes connections of its own.

    :param url: a SQLAlchemy URL.
    :param schema: the PostgreSQL schema of our tables; empty: the connection's own.
    :param pool_size: connections that stay open; as many more may be opened for a while.
    :param clock: replaces the database's clock in tests: returns milliseconds.
    :raises SettingsError: when the URL is malformed or its driver is not installed.
    """

    def __init__(
        self, url: str, *, schema: str = "", pool_size: int = POOL_SIZE, clock: Callable[[], Milliseconds] | None = None
    ) -> None:
        self.engine = make_engine(url, pool_size)
        if schema:  # not as search_path: PgBouncer in transaction mode does not keep it
            self.engine = self.engine.execution_options(schema_translate_map={None: schema})
        self.schema = schema
        self._clock = clock
        self._of_parents: list[Any] = []  # pools of connections
        forks.note(self)

    @classmethod
    def of(
        cls, settings: DatabaseSettings, *, pool_size: int = POOL_SIZE, clock: Callable[[], Milliseconds] | None = None
    ) -> Self:
        """Return the database that settings name. An SQLite file is not made: see `refuse_missing_file`."""
        made = cls(settings.database_url, schema=settings.database_schema, pool_size=pool_size, clock=clock)
        refuse_missing_file(made.engine)
        return made

    def now(self, connection: Connection, clock: Callable[[], Milliseconds] | None = None) -> Milliseconds:
        """Return the time by the database's clock.

        :param clock: that of the transaction, which spares a question.
        """
        if (clock := self._clock or clock) is not None:
            return clock()
        return int(connection.exec_driver_sql(clock_question(connection.dialect.name)).scalar_one())

    def given_now(self, connection: Connection) -> Milliseconds | None:
        """Return the time for statements that cannot read the clock themselves; None where they can."""
        return None if self._clock is None and connection.dialect.name == "postgresql" else self.now(connection)

    def read(
        self,
        question: Callable[Concatenate[Connection, Arguments], Result],
        /,
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Call ``question`` with a connection and the arguments that follow, outside of any transaction.

        ``question`` takes no locks of rows. It is called once more where its connection turns out to be lost.

        :raises Unreachable: when the database does not answer, or another transaction holds a whole table for too long.
        """
        for is_last in (False, True):
            try:
                with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    return question(connection, *args, **named)
            except (DBAPIError, PoolTimeout) as error:
                # a connection that was lost while it was idle is replaced: the server may be there again
                if is_last or not getattr(error, "connection_invalidated", False):
                    if is_unreachable(error) or is_locked(error):
                        raise Unreachable(database_errors.unreachable(self.engine, error)) from error
                    database_errors.explain(error)
                    raise
        raise AssertionError("unreachable")

    def run(
        self,
        change: Callable[Concatenate[Connection, Arguments], Result],
        /,
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Call ``change`` with a connection and the arguments that follow in one transaction: see `Transaction.run`.

        :raises Unreachable: when the database does not answer, or stays busy, after the last attempt.
        """
        return self.transaction().run(change, *args, **named)

    def transaction(
        self,
        *,
        attempts: int = ATTEMPTS,
        again: Callable[..., Any] | None = None,
        kept: Callable[[Connection, Any], bool] | None = None,
    ) -> Transaction:
        """Return a transaction with terms of its own: see `Transaction`."""
        return Transaction(self.engine, attempts=attempts, again=again, kept=kept)

    def is_read_only(self) -> bool:
        """Whether the server takes no writes: a standby, or a server that was set read-only.

        :raises Unreachable: when the database does not answer.
        """
        question = _READ_ONLY.get(self.engine.dialect.name)
        return question is not None and bool(self.read(_answer, question))

    def encoding(self) -> str | None:
        """Return the encoding of a PostgreSQL database, which limits its texts; None on other databases.

        :raises Unreachable: when the database does not answer.
        """
        if self.engine.dialect.name != "postgresql":
            return None
        return str(self.read(_answer, "SHOW server_encoding"))

    def file(self) -> str:
        """Return the path of an SQLite database's file; empty where it is in memory.

        :raises Unreachable: when the file cannot be opened.
        """
        return str(self.read(lambda c: c.exec_driver_sql("PRAGMA database_list").all()[0][2]) or "")

    @property
    def where(self) -> str:
        """The URL of the database without its password, for people."""
        return database_errors.where(self.engine)

    def dispose(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def begin_anew(self) -> None:
        """Leave the connections to the parent process. They stay open here: a close would end them on the server."""
        self._of_parents.append(self.engine.pool)
        self.engine.dispose(close=False)


def table_prefix(connection: Connection) -> str:
    """Return the prefix of our tables' names in SQL that SQLAlchemy does not write."""
    schema = connection.get_execution_options().get("schema_translate_map", {}).get(None, "")
    return f'"{schema}".' if schema else ""


def fetch(connection: Connection, statement: str, values: Mapping[str, Any]) -> list[Any]:
    """Run SQL in the driver's form; return the driver's rows: SQLAlchemy's cost four times as much."""
    return fetched(connection.exec_driver_sql(statement, dict(values)))


def fetched(result: CursorResult[Any]) -> list[Any]:
    """Return the rows of a result as the driver gives them."""
    assert result.cursor is not None
    rows = list(result.cursor.fetchall())
    result.close()
    return rows


def _answer(connection: Connection, question: str) -> Any:
    return connection.exec_driver_sql(question).scalar_one()
