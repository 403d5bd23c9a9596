"""One engine for each database of SQL sensors. Its connections are kept until they have been idle for a while.

SQLAlchemy's pool keeps a fixed number for ever. A low number has each burst of pokes connect anew, which costs more
than the pokes. A high one holds connections of the user's server through the hours between two bursts.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, CursorResult, Engine, NullPool, QueuePool, Row, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from sensorpool.errors import InfraFailure, SettingsError
from sensorpool.sensors.shared import Shared
from sensorpool.sensors.sql_errors import has_code, said_by
from sensorpool.sensors.statement_limits import begins, limit_connections, limit_transaction

Answer = TypeVar("Answer")

MAX_ENGINES = 32
CONNECT_SECONDS = 5
OLDEST = 240  # seconds: firewalls drop connections that are idle for longer
IDLE_KEPT = 30.0  # seconds
KEPT = 4  # connections that are kept however long they are idle


class KeptConnections(QueuePool):
    """A pool that closes connections which have been idle for `IDLE_KEPT`, but for the last `KEPT`."""

    _is_watched = False

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        record.info["idle_since"] = time.monotonic()
        super()._do_return_conn(record)
        if self.checkedin() > KEPT and not self._is_watched:
            self._watch()

    def _watch(self) -> None:
        timer = threading.Timer(IDLE_KEPT, self._look)
        timer.daemon = True
        with suppress(RuntimeError):  # no thread can be started: the next connection that is returned tries again
            timer.start()
            self._is_watched = True

    def _look(self) -> None:
        self._is_watched = False
        self.close_idle()
        if self.checkedin() > KEPT:
            self._watch()

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long."""
        latest, idle = time.monotonic() - IDLE_KEPT, self._pool
        while True:
            with idle.mutex:  # type: ignore[attr-defined]
                found = idle.queue  # type: ignore[attr-defined]
                # the first has been idle for longest: the last that was returned is taken first
                if len(found) <= KEPT or found[0].info.get("idle_since", 0.0) > latest:
                    return
                record = found.popleft()
            self._dec_overflow()
            record.close()


_engines: Shared[str, Engine] = Shared(MAX_ENGINES, discard=Engine.dispose)

# a file that is published anew by a rename is another file: no connection is kept to the old one
_FILE: dict[str, Any] = {"poolclass": NullPool}
_SERVER: dict[str, Any] = {
    "poolclass": KeptConnections,
    "pool_size": 0,  # no limit
    "pool_use_lifo": True,  # idle connections stay idle, so that they are closed
    "pool_recycle": OLDEST,
}
# their drivers close a cursor after they have read all its rows
_READ_TO_THE_END = ("mysql", "mariadb")
# by whether `limit_transaction` begins the transaction
_TRANSACTION: dict[bool, dict[str, Any]] = {
    True: {"isolation_level": "AUTOCOMMIT"},
    False: {"execution_options": {"postgresql_readonly": True}},
}
_CONNECT_ARGUMENTS: dict[str, dict[str, Any]] = {
    # prepare_threshold: prepared statements do not survive PgBouncer in transaction mode
    # client_encoding: without it a database in SQL_ASCII sends bytes, which SQLAlchemy cannot read
    "psycopg": {"connect_timeout": CONNECT_SECONDS, "prepare_threshold": None, "client_encoding": "utf8"},
    "psycopg2": {"connect_timeout": CONNECT_SECONDS},
    "pymysql": {"connect_timeout": CONNECT_SECONDS},
    "mysqldb": {"connect_timeout": CONNECT_SECONDS},
}


def ask(name: str, url: str, question: Callable[[Connection], Answer]) -> Answer:
    """Ask the database of the variable ``name`` a question in a transaction that is rolled back.

    There are as many connections at once as pokes: a poke waits for no other poke, above all not for one that hangs.

    :param question: is called again, with another connection, where a kept one turns out to be closed.
    :raises DBAPIError: when the database refuses the question, or ends the connection.
    :raises InfraFailure: when the database cannot be reached.
    :raises SettingsError: when the URL or an option of it is malformed, or its driver is not installed; the text leaves
        out the URL.
    """
    engine = _engines.get(url, lambda: _make_engine(name, url))
    while True:
        connection = _connect(engine, name, url)
        was_kept = connection.info.get("was_asked", False)
        connection.info["was_asked"] = True
        try:
            with connection:
                limit_transaction(connection)
                return question(connection)
        except DBAPIError as error:
            if not (was_kept and error.connection_invalidated):
                raise


def _connect(engine: Engine, name: str, url: str) -> Connection:
    try:
        return engine.connect()
    except (OperationalError, InterfaceError, OSError) as error:
        raise InfraFailure(f"{name}: the database cannot be reached: {said_by(error, url)}") from error
    # AttributeError: PyMySQL says so of an unknown charset
    except (ProgrammingError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ProgrammingError) and has_code(error):
            raise  # the server has answered
        raise SettingsError(f"{name}: its driver refuses an option: {said_by(error, url)}") from None


def first_row(connection: Connection, result: CursorResult[Any]) -> Row[Any] | None:
    """Return the first row of a result; the others stay on the server."""
    if begins(connection.dialect):
        row = result.fetchone()
        connection.rollback()  # it ends the cursor too: a close before it asks the server once more
        result.close()
        return row
    if connection.dialect.name not in _READ_TO_THE_END:
        return result.first()
    row = result.fetchone()
    if row is None:
        return None
    if result.fetchone() is not None:
        unread: Any = getattr(result.cursor, "_result", None)
        if hasattr(unread, "unbuffered_active"):
            unread.unbuffered_active = False  # PyMySQL would read on when the cursor is collected
        connection.invalidate()
    return row


def _make_engine(name: str, url: str) -> Engine:
    try:
        parsed = make_url(url)
        dialect = parsed.get_dialect()
        if dialect.is_async:
            raise SettingsError(f"{name} has the asynchronous driver {parsed.drivername}: name another")
        if parsed.get_backend_name() == "sqlite":
            parsed = _existing_file(name, parsed)
        engine = create_engine(
            parsed,
            **(_FILE if dialect.name == "sqlite" else _SERVER),
            connect_args={
                argument: value
                for argument, value in _CONNECT_ARGUMENTS.get(dialect.driver, {}).items()
                if argument not in parsed.query
            },
            **_TRANSACTION[begins(dialect)],
        )
    except NoSuchModuleError:
        raise SettingsError(f"{name} names a database that SQLAlchemy does not know here") from None
    except ModuleNotFoundError as error:
        raise SettingsError(f"{name} needs the driver {error.name} on this worker: install it") from None
    except (ArgumentError, ValueError):
        raise SettingsError(f"{name} is not a SQLAlchemy URL like postgresql://user@host/database") from None
    if dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    limit_connections(engine)
    return engine


def _existing_file(name: str, url: URL) -> URL:
    """Open the file if it exists: SQLite would make an empty database of a typo."""
    if not url.database or url.database == ":memory:":
        raise SettingsError(f"{name} names a SQLite database in memory, which is empty: name a file")
    if url.database.startswith("file:"):
        return url  # SQLite's own URI says how the file is opened
    return url.set(database=f"file:{quote(url.database)}").update_query_dict({"mode": "rw", "uri": "true"})


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA query_only = ON").close()
    connection.text_factory = lambda text: text.decode(errors="replace")  # SQLite takes any bytes for a text
