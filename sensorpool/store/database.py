"""The engine, its transactions, and the database's clock."""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    CursorResult,
    Engine,
    create_engine,
    event,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sensorpool.errors import SchemaMismatch, SettingsError, Unreachable
from sensorpool.model import Milliseconds
from sensorpool.redaction import hide_password
from sensorpool.store.functions import clock_ms

Result = TypeVar("Result")

ATTEMPTS = 8
SQLITE_PATIENCE = 3.0  # seconds that one attempt waits for another writer
_CONFLICTS = {"40001", "40P01", "55P03", "1213", "1205"}  # serialization, deadlock, lock timeouts
_SQLITE_AWAY = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOTADB"}
_NO_TABLE = {"42P01", "3F000", "1146"}
_MYSQL_DRIVERS = {"pymysql", "MySQLdb", "mysql"}  # a number of theirs says more than a SQLSTATE
_DRIVERS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}


class Database:
    """One engine. Safe to share between threads, not between processes.

    :param url: a SQLAlchemy URL.
    :param schema: where our tables are, on PostgreSQL; empty, the connection's own schema.
    :param clock: stands in for the database's clock in tests: returns milliseconds.
    :raises SettingsError: when the URL is malformed or its driver is not installed.
    """

    def __init__(
        self, url: str, *, schema: str = "", pool_size: int = 5, clock: Callable[[], Milliseconds] | None = None
    ) -> None:
        self.engine = _make_engine(url, pool_size)
        if schema:  # not by search_path: PgBouncer in transaction mode does not keep it
            self.engine = self.engine.execution_options(schema_translate_map={None: schema})
        self.schema = schema
        self._clock = clock

    def now(self, connection: Connection) -> Milliseconds:
        """Ask the database what time it is."""
        if self._clock is not None:
            return self._clock()
        return int(connection.execute(select(clock_ms())).scalar_one())

    def given_now(self, connection: Connection) -> Milliseconds | None:
        """Return what time it is, where a statement cannot ask that by itself (None: it can)."""
        return None if self._clock is None and connection.dialect.name == "postgresql" else self.now(connection)

    def read(self, question: Callable[[Connection], Result]) -> Result:
        """Ask something that takes no locks, outside of any transaction.

        :raises Unreachable: when the database does not answer.
        """
        try:
            with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                return question(connection)
        except (DBAPIError, PoolTimeout) as error:
            if is_unreachable(error):
                raise Unreachable(self._unreachable(error)) from error
            _explain(error)
            raise

    def run(self, change: Callable[[Connection], Result], attempts: int = ATTEMPTS) -> Result:
        """Run a change in one transaction; on deadlock, serialization failure or a lost connection, run it again.

        The change must be harmless when it is repeated: an answer to COMMIT may get lost on its way.

        :raises Unreachable: when the database does not answer, or is busy with others, after the last attempt.
        """
        for attempt in range(1, attempts + 1):
            try:
                with self.engine.begin() as connection:
                    return change(connection)
            except (DBAPIError, PoolTimeout) as error:
                if not (is_unreachable(error) or is_conflict(error)) or (
                    attempt == attempts and isinstance(error, IntegrityError)
                ):
                    _explain(error)
                    raise
                if attempt == attempts:
                    raise Unreachable(self._unreachable(error)) from error
            time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
        raise AssertionError("unreachable")

    def dispose(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def _unreachable(self, error: Exception) -> str:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
        where = hide_password(self.engine.url.render_as_string(hide_password=True))
        does = "is busy" if is_conflict(error) else "does not answer"
        return f"the database {where} {does}: {hide_password(cause[0])[:200]}"


def table_prefix(connection: Connection) -> str:
    """Return what stands before the names of our tables in SQL that SQLAlchemy does not write."""
    schema = connection.get_execution_options().get("schema_translate_map", {}).get(None, "")
    return f'"{schema}".' if schema else ""


def fetch(connection: Connection, statement: str, values: Mapping[str, Any]) -> list[Any]:
    """Run SQL as the driver takes it, and return its rows as they are: SQLAlchemy's cost four times as much."""
    return fetched(connection.exec_driver_sql(statement, dict(values)))


def fetched(found: CursorResult[Any]) -> list[Any]:
    """Return the rows of a result as the driver gives them."""
    assert found.cursor is not None
    rows = list(found.cursor.fetchall())
    found.close()
    return rows


def _explain(error: Exception) -> None:
    """Say what mends it where our tables are not there.

    :raises SchemaMismatch: if so.
    """
    if _code(error) in _NO_TABLE or "no such table" in str(getattr(error, "orig", "")):
        raise SchemaMismatch("the database has no sensorpool tables: run `sensorpool db upgrade`") from error


def is_conflict(error: Exception) -> bool:
    """Whether two transactions were in each other's way, so that one of them has to come again."""
    if isinstance(error, IntegrityError):
        return True  # somebody registered the same condition or key a moment ago: next time we see it
    code = _code(error)
    return code in _CONFLICTS or "database is locked" in str(getattr(error, "orig", ""))


def is_unreachable(error: Exception) -> bool:
    """Whether the database was not there (rather than unwilling)."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError) or is_conflict(error):
        return False
    code = _code(error)
    if error.connection_invalidated or code[:2] in {"08", "57", "53", "28", "3D"} or code in _SQLITE_AWAY:
        return True
    # no SQLSTATE: the driver never got an answer
    return isinstance(error, OperationalError) and (code in {"", "None", "1040", "2002", "2003", "2006", "2013"})


def _code(error: Exception) -> str:
    orig = getattr(error, "orig", None)
    state = getattr(orig, "sqlstate", None)
    if state is not None and type(orig).__module__.partition(".")[0] not in _MYSQL_DRIVERS:
        return str(state)
    if type(orig).__module__.startswith("sqlite3"):
        return str(getattr(orig, "sqlite_errorname", "sqlite"))
    arguments = getattr(orig, "args", ())
    return str(arguments[0]) if arguments and isinstance(arguments[0], int) else ""


def _make_engine(url: str, pool_size: int) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername.startswith("postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")  # Airflow's URLs name other drivers
        backend = parsed.get_backend_name()
        options: dict[str, Any] = {"pool_pre_ping": True}
        if backend == "sqlite":
            if parsed.database and parsed.database != ":memory:":
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            options["connect_args"] = {"timeout": SQLITE_PATIENCE, "check_same_thread": False}
        else:
            options |= {
                "pool_size": pool_size,
                "max_overflow": pool_size,
                "pool_timeout": 10,
                "pool_recycle": 1800,
            }
            options["isolation_level"] = "READ COMMITTED"
            options["connect_args"] = _connect_arguments(backend)
        engine = create_engine(parsed, **options)
    except NoSuchModuleError:
        raise SettingsError(f"SENSORPOOL_DATABASE_URL: no database is called {parsed.drivername!r}") from None
    except ModuleNotFoundError as error:
        extra = _DRIVERS.get(parsed.get_backend_name())
        mend = f'pip install "sensorpool[{extra}]"' if extra else f"install {error.name}"
        raise SettingsError(f"SENSORPOOL_DATABASE_URL needs the driver {error.name}: {mend}") from None
    except (ArgumentError, ValueError):
        raise SettingsError("SENSORPOOL_DATABASE_URL is not a SQLAlchemy URL like sqlite:////path/to/file.db") from None
    except OSError as error:
        raise SettingsError(
            f"SENSORPOOL_DATABASE_URL: cannot make the folder {error.filename}: {error.strerror}"
        ) from None
    if backend == "sqlite":
        _tune_sqlite(engine)
    return engine


def _connect_arguments(backend: str) -> dict[str, Any]:
    if backend == "postgresql":
        # prepare_threshold: prepared statements do not survive PgBouncer in transaction mode
        return {
            "connect_timeout": 5,
            "prepare_threshold": None,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        }
    return {"connect_timeout": 5, "read_timeout": 30, "write_timeout": 30, "charset": "utf8mb4"}


def _tune_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # a lock taken late cannot be waited for
