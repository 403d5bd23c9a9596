"""The engine of each type of database: its driver, its pool of connections, and the time limits of a connection."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from sensorpool.errors import SchemaMismatch, SettingsError
from sensorpool.store import pooler_detection
from sensorpool.store.database_errors import spoils_connections

IDLE_LIMIT_MS = 3_000  # a process that freezes inside a transaction holds its locks no longer than this
LOCK_WAIT_MS = 4_000  # for one lock; longer than the idle limit, so that a frozen process's lock comes free in time
SQLITE_PATIENCE = 3.0  # seconds that one attempt waits for another writer
_DRIVERS = {"postgresql": "psycopg[binary]", "mysql": "pymysql", "mariadb": "pymysql"}  # their names for pip


def make_engine(url: str, pool_size: int) -> Engine:
    """Make the engine of a URL; nothing connects yet.

    :raises SettingsError: when the URL is malformed or its driver is not installed.
    """
    try:
        parsed = make_url(url)
        if parsed.drivername.startswith("postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")  # Airflow's URLs name other drivers
        if parsed.drivername in {"mysql", "mariadb"}:
            parsed = parsed.set(drivername=f"{parsed.drivername}+pymysql")
        backend = parsed.get_backend_name()
        options: dict[str, Any] = {}
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
        mend = f'pip install "{extra}"' if extra else f"install {error.name}"
        raise SettingsError(f"SENSORPOOL_DATABASE_URL needs the driver {error.name}: {mend}") from None
    except (ArgumentError, ValueError):
        raise SettingsError(
            "SENSORPOOL_DATABASE_URL cannot be read: write it like postgresql://user:password@host:5432/name (in a "
            "password @ is %40, / is %2F, # is %23) or sqlite:////path/to/file.db"
        ) from None
    except OSError as error:
        raise SettingsError(
            f"SENSORPOOL_DATABASE_URL: cannot make the folder {error.filename}: {error.strerror}"
        ) from None
    if backend == "sqlite":
        _tune_sqlite(engine)
    elif backend in {"mysql", "mariadb"}:
        event.listen(engine, "connect", _bound_mysql)
    else:
        pooler_detection.listen(engine, LOCK_WAIT_MS)
    event.listen(engine, "handle_error", _drop_spoilt_connections)
    return engine


def refuse_missing_file(engine: Engine) -> None:
    """Have connections fail while an SQLite file does not exist, so that a command that only looks does not make it.

    They raise `SchemaMismatch`.
    """
    engine.update_execution_options(sqlite_file_must_exist=True)


def transaction_limits() -> str:
    """Return SQL that sets the limits of a transaction on PostgreSQL: columns of a SELECT, before the first lock.

    PostgreSQL ends the transaction if its process freezes in it, so that its locks do not last, and bounds its waits
    for locks. It must also read indexes: when thousands have just settled, its statistics say that no row is sensing,
    and that a read of the whole table is quickest.
    """
    limits = {
        "lock_timeout": LOCK_WAIT_MS,
        "idle_in_transaction_session_timeout": IDLE_LIMIT_MS,
        "enable_seqscan": "off",
    }
    return ", ".join(f"set_config('{name}', '{value}', true)" for name, value in limits.items())


def _drop_spoilt_connections(context: ExceptionContext) -> None:
    """Treat a server that cannot write like a server that is gone: its connections leave the pool.

    After a failover by name, the old connections still lead to the old server, which may be read-only now.
    """
    if not context.is_disconnect and spoils_connections(context.original_exception):
        context.is_disconnect = True


def _connect_arguments(backend: str) -> dict[str, Any]:
    if backend == "postgresql":
        return {
            "connect_timeout": 5,
            "prepare_threshold": None,  # see `pooler_detection`
            "client_encoding": "utf8",  # whatever the database's encoding; texts of SQL_ASCII would be bytes here
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        }
    return {"connect_timeout": 5, "read_timeout": 30, "write_timeout": 30, "charset": "utf8mb4"}


def _bound_mysql(connection: Any, _record: Any) -> None:
    """Bound how long a transaction waits for a lock and, on MariaDB, how long it may be idle.

    In whole seconds. Not as ``init_command``, which the URL may use for something else.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_MS // 1000}")
        if "mariadb" in str(connection.get_server_info()).lower():
            cursor.execute(f"SET SESSION idle_transaction_timeout = {IDLE_LIMIT_MS // 1000}")


def _tune_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "do_connect")
    def _before_connect(_dialect: Any, _record: Any, arguments: list[Any], _named: Any) -> None:
        path = arguments[0]
        if path.startswith((":memory:", "file:")) or Path(path).exists():
            return
        if engine.get_execution_options().get("sqlite_file_must_exist"):
            raise SchemaMismatch(
                f"there is no SQLite file {path}: name the pool's database in SENSORPOOL_DATABASE_URL (or Airflow's "
                "folder in AIRFLOW_HOME), or make a new one with `sensorpool standalone` or `sensorpool db upgrade`"
            )
        with suppress(OSError):  # another process was quicker, or SQLite says why it cannot be made
            # its owner's alone: contexts are in it; SQLite gives -wal and -shm the same mode
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # `_on_begin` sends BEGIN
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # a later upgrade of the lock would fail without a wait
