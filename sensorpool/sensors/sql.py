"""A sensor for a row in a database."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Connection, Dialect, Row, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sensorpool.errors import InfraFailure
from sensorpool.sensors import arguments
from sensorpool.sensors.connections import PokeFailed, connection, variable
from sensorpool.sensors.engines import ask, first_row
from sensorpool.sensors.sql_errors import is_passing, said_by

# PostgreSQL has no cursor for them. With a second statement they get one, and its error
_WITHOUT_CURSOR = re.compile(r"\s*(SHOW|EXPLAIN)\b[^;]*[;\s]*", re.IGNORECASE)
# of MySQL and MariaDB, to which it is 0 and NULL. Their drivers return it as text, or as None
_ZERO_DATE = re.compile(r"0000-00-00( 00:00:00(\.0*)?)?")
Scalar = bool | int | float | str | None


class SqlSensor:
    """Holds when the first cell of the first row is a true value.

    The rule is the one that Airflow's SqlSensor documents: no row, NULL, 0, ``'0'`` and the empty string are
    not yet, anything else holds. (Its code asks ``bool(cell)``, so there ``'0'`` holds.) False, 0.0, an
    empty array and bytes that are all zero are not yet either: a ``BIT`` of MySQL and MariaDB comes as bytes.
    Nor is a zero date of MySQL and MariaDB. A value that Python cannot hold, like ``'infinity'::date``, is an error.
    (Bit strings and money of PostgreSQL, JSON of MySQL and MariaDB and what ``SHOW`` tells come as text: compare
    them, as in ``flags <> B'00'`` or ``current_setting('archive_mode') = 'on'``.)

    Nothing is ever committed: PostgreSQL runs the statement in a READ ONLY transaction, SQLite in a
    query-only connection to a file that must exist, others roll back. That is a guard against mistakes.
    Against malice, give the connection's user the right to read and no other. Rows after the first are not
    fetched.

    A statement ends on PostgreSQL, MariaDB and MySQL a second after the time limit of its poke, also while it waits for
    a lock, unless the connection has a limit of its own (PostgreSQL:
    ``?options=-c%20statement_timeout=5000``; MariaDB: ``?init_command=SET%20max_statement_time=5``). On another
    database such a limit belongs into its URL or to its user.

    :param sql: one statement that returns rows, with ``:name`` for each parameter (``\\:`` for a bare colon).
    :param conn_id: names the connection, a SQLAlchemy URL.
    :param parameters: the values by name: strings, numbers, booleans and null.
    :raises TypeError: when an argument is of the wrong type.
    :raises ValueError: when the SQL is empty, or its parameters differ from the given ones.
    """

    __module__ = "sensorpool.sensors"  # one spelling of the class path, wherever the class is reached from
    poke_context_fields: ClassVar[tuple[str, ...]] = ("sql", "conn_id", "parameters")

    def __init__(self, sql: str, *, conn_id: str, parameters: Mapping[str, Scalar] | None = None) -> None:
        if not isinstance(sql, str):
            raise TypeError(f"sql is a string, not {type(sql).__name__}")
        if not sql.strip(" \t\r\n;"):
            raise ValueError("sql is empty")
        if "\0" in sql:
            raise ValueError("sql has a NUL character in it")
        self.sql = sql
        self.conn_id = arguments.conn_id(conn_id)
        self.parameters = None if parameters is None else _check_parameters(parameters)
        self._spelling: tuple[Any, str, Any] | None = None  # what the last poke asked, and as its driver took it
        _compare(named=set(text(sql).compile().params), given=set(self.parameters or ()))

    def poke(self, context: Any = None) -> bool:  # noqa: ARG002  # every sensor's poke takes one
        """Return whether the first cell of the first row is a true value.

        :raises InfraFailure: when the database cannot be reached, has run out of a resource, or another transaction
            is in the way.
        :raises PokeFailed: when the database refuses the statement.
        :raises SettingsError: when this worker does not know the connection, or lacks its driver.
        """
        name = variable(self.conn_id)
        url = connection(self.conn_id)
        try:
            row = ask(name, url, self._first_row)
        except DBAPIError as error:
            reason = f"{name}: {said_by(error, url)}"
            raise InfraFailure(reason) if is_passing(error) else PokeFailed(reason) from error
        except SQLAlchemyError as error:
            raise PokeFailed(f"{name}: {said_by(error, url)}") from error
        return row is not None and _holds(row[0])

    def _first_row(self, database: Connection) -> Row[Any] | None:
        # one row at a time: psycopg would fetch the whole result
        options = {"stream_results": not _WITHOUT_CURSOR.fullmatch(self.sql), "max_row_buffer": 1}
        spelled, values = self._spelled(database.dialect)
        result = database.exec_driver_sql(spelled, values, execution_options=options)
        if not result.returns_rows or (row := first_row(database, result)) == ():
            raise PokeFailed("the statement returns no rows: a sensor waits for what a SELECT finds")
        return row

    def _spelled(self, dialect: Dialect) -> tuple[str, Any]:
        """Return the statement and its parameters as the driver of a dialect takes them.

        Kept here: an engine keeps 500 compiled statements, and each sensor may have one of its own.
        """
        asked = (dialect, self.sql, None if self.parameters is None else {**self.parameters})
        if self._spelling is None or self._spelling[0] != asked:  # a subclass may change them
            compiled: Any = text(self.sql).compile(dialect=dialect)
            values = compiled.construct_params(self.parameters)
            if compiled.positional:
                values = tuple(values[name] for name in compiled.positiontup)
            self._spelling = (asked, compiled.string, values)
        return self._spelling[1:]


def _holds(cell: object) -> bool:
    if isinstance(cell, bytes | bytearray | memoryview):
        return bool(bytes(cell).strip(b"\0"))
    return bool(cell) and cell != "0" and not (isinstance(cell, str) and _ZERO_DATE.fullmatch(cell))


def _check_parameters(parameters: object) -> dict[str, Scalar]:
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters is an object of names and values, not {type(parameters).__name__}")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise TypeError(f"parameters has the name {str(name)[:40]!r}, which is not a string")
        if value is not None and not isinstance(value, bool | int | float | str):
            raise TypeError(f"parameters has a {type(value).__name__} for {name!r}: give a scalar")
    return dict(parameters)


def _compare(named: set[str], given: set[str]) -> None:
    if missing := sorted(named - given):
        raise ValueError(f"sql names :{missing[0]}, which parameters lacks (a bare colon is written \\:)")
    if spare := sorted(given - named):
        raise ValueError(f"parameters has {spare[0]!r}, but sql does not name :{spare[0]}")
