"""One small engine for each database of SQL sensors, and the meaning of its errors."""

from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sensorpool.errors import SettingsError
from sensorpool.sensors.connections import InfraFailure, one_line
from sensorpool.sensors.shared import Shared

MAX_ENGINES = 32
POOL_SIZE = 4
CONNECT_SECONDS = 5

_engines: Shared[str, Engine] = Shared(MAX_ENGINES, discard=Engine.dispose)

_CONNECT_ARGUMENTS: dict[str, dict[str, Any]] = {
    # prepare_threshold: prepared statements do not survive PgBouncer in transaction mode
    "psycopg": {"connect_timeout": CONNECT_SECONDS, "prepare_threshold": None},
    "psycopg2": {"connect_timeout": CONNECT_SECONDS},
    "pymysql": {"connect_timeout": CONNECT_SECONDS},
    "mysqldb": {"connect_timeout": CONNECT_SECONDS},
}
# SQLSTATE: connection lost, conflict of transactions, out of resources, shut down or cancelled, I/O error
_PASSING_CLASSES = ("08", "40", "53", "57", "58")
_PASSING_STATES = frozenset({"55P03"})  # a lock was not available
# MySQL: too many connections, shutting down, lock timeout, deadlock, and the client's "server has gone away"
_PASSING_NUMBERS = frozenset({1040, 1053, 1205, 1213, 2002, 2003, 2006, 2013})
_PASSING_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL")


def connect(name: str, url: str) -> Connection:
    """Return a connection to the database of the variable ``name``; its close rolls back.

    :raises InfraFailure: when the database cannot be reached.
    :raises SettingsError: when the URL is malformed, or its driver is not installed; the text leaves out the URL.
    """
    engine = _engines.get(url, lambda: _make_engine(name, url))
    try:
        return engine.connect()
    except (OperationalError, InterfaceError, PoolTimeout, OSError) as error:
        raise InfraFailure(f"{name}: the database cannot be reached: {said_by(error, url)}") from error


def is_passing(error: DBAPIError) -> bool:
    """Whether the database was away or busy, rather than refusing the statement."""
    if error.connection_invalidated:
        return True
    orig = error.orig
    state = getattr(orig, "sqlstate", None) or getattr(orig, "pgcode", None)
    if isinstance(state, str):
        return state[:2] in _PASSING_CLASSES or state in _PASSING_STATES
    if isinstance(found := getattr(orig, "sqlite_errorname", None), str):
        return found.startswith(_PASSING_SQLITE)
    numbers: tuple[Any, ...] = getattr(orig, "args", ())
    return bool(numbers) and isinstance(numbers[0], int) and numbers[0] in _PASSING_NUMBERS


def said_by(error: BaseException, url: str) -> str:
    """Return the database's error in one line, without the statement, its parameters and the password."""
    said = getattr(error, "orig", None) or error
    if isinstance(said, SQLAlchemyError):
        said = said.args[0] if said.args else type(said).__name__
    try:
        password = make_url(url).password or ""
    except (ArgumentError, ValueError):
        password = ""
    return one_line(str(said), [password, url])


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
            pool_size=POOL_SIZE,
            max_overflow=POOL_SIZE,
            pool_timeout=CONNECT_SECONDS,
            pool_pre_ping=True,
            pool_use_lifo=True,  # idle connections stay idle, so that the server may close them
            connect_args={
                argument: value
                for argument, value in _CONNECT_ARGUMENTS.get(dialect.driver, {}).items()
                if argument not in parsed.query
            },
            execution_options={"postgresql_readonly": True},
        )
    except NoSuchModuleError:
        raise SettingsError(f"{name} names a database that SQLAlchemy does not know here") from None
    except ModuleNotFoundError as error:
        raise SettingsError(f"{name} needs the driver {error.name} on this worker: install it") from None
    except (ArgumentError, ValueError):
        raise SettingsError(f"{name} is not a SQLAlchemy URL like postgresql://user@host/database") from None
    if dialect.name == "sqlite":
        event.listen(engine, "connect", _only_query)
    return engine


def _existing_file(name: str, url: URL) -> URL:
    """Open the file if it exists: SQLite would make an empty database of a typo."""
    if not url.database or url.database == ":memory:":
        raise SettingsError(f"{name} names a SQLite database in memory, which is empty: name a file")
    if url.database.startswith("file:"):
        return url  # SQLite's own URI says how the file is opened
    return url.set(database=f"file:{quote(url.database)}").update_query_dict({"mode": "rw", "uri": "true"})


def _only_query(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA query_only = ON").close()
