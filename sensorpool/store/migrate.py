"""The versions of the schema. Alembic owns the schema; this module calls Alembic."""

import time
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version
from sqlalchemy import Connection, column, inspect, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema

from sensorpool.errors import SchemaMismatch, SettingsError, Unreachable
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.urls import is_in_memory
from sensorpool.store.database import Database
from sensorpool.store.database_errors import is_conflict, is_unreachable
from sensorpool.store.schema import schema_info

VERSION_TABLE = "sensorpool_alembic_version"
MEND = "run `sensorpool db upgrade`"
PATIENCE = 60.0  # seconds of further attempts while other transactions hold locks on our tables
LOCK_WAIT = 2  # seconds for one lock: all statements on the table queue up behind the wait
_PAUSE = 3.0  # seconds between two attempts, in which all waiting statements go on
_UPGRADE = 0x73656E73, 0x75706772  # the advisory lock of a change; registrations take small numbers in the same space


def migrations_folder() -> Path:
    """Return the folder of the migrations."""
    return Path(__file__).parent / "migrations"


def upgrade(
    url: str, *, schema: str = "", patience: float = PATIENCE, say: Callable[[str], None] = lambda _: None
) -> str:
    """Bring the schema up to date; return the revision's name. A second run changes nothing.

    A schema that a newer version of sensorpool has made stays as it is: `check` says whether this version may use it.

    :param schema: the PostgreSQL schema of our tables; it is made if it does not exist.
    :param patience: seconds of further attempts while other transactions (often a backup) hold the locks.
    :param say: is called with a line when the change has to wait.
    :raises Unreachable: when the database does not answer, or the locks are held for longer.
    :raises SettingsError: when the database is in memory and would end with this process.
    """
    if is_in_memory(url):
        raise SettingsError(
            "SENSORPOOL_DATABASE_URL names an SQLite database in memory, which ends with this process: "
            "name a file, like sqlite:////path/to/pool.db, or a server"
        )
    database = Database(url, schema=schema)
    deadline, has_said = time.monotonic() + patience, False
    try:
        if (found := _current(database)) is not None and found not in _known():
            return found
        while True:
            try:
                _upgrade(database)
                return head()
            except DBAPIError as error:
                if is_unreachable(error):
                    raise Unreachable(f"the schema was left alone: {one_line(error.orig or error)}") from error
                if not is_conflict(error):
                    raise
                if time.monotonic() + _PAUSE > deadline:
                    raise Unreachable(
                        "the database is busy, its schema was left alone: another transaction holds a lock on a table, "
                        f"often a backup ({one_line(error.orig or error)}): end it, and run this again"
                    ) from error
            if not has_said:
                say(f"waits for a lock, up to {patience:g} s: another transaction holds it, often a backup")
                has_said = True
            time.sleep(_PAUSE)
    finally:
        database.dispose()


def current(url: str, *, schema: str = "") -> str | None:
    """Return the revision of the database, or None if it has none of our tables."""
    database = Database(url, schema=schema)
    try:
        return _current(database)
    finally:
        database.dispose()


def head() -> str:
    """Return the revision that belongs to this code."""
    from alembic.script import ScriptDirectory

    name: str | None = ScriptDirectory(str(migrations_folder())).get_current_head()
    assert name is not None
    return name


def check(database: Database, code_version: str) -> None:
    """Check that this code may use the database's schema.

    A schema newer than this code is fine if its row of `schema_info` still allows this version (migrations expand
    first and contract a version later).

    :raises SchemaMismatch: when it may not; with the command that mends it.
    :raises Unreachable: when the database does not answer.
    """
    found = _current(database)
    if found is None:
        raise SchemaMismatch(f"the database has no sensorpool tables: {MEND}")
    if found == head():
        return
    if found in _known():
        raise SchemaMismatch(f"the database's schema is {found}, older than this version's {head()}: {MEND}")
    oldest = database.read(Connection.scalar, select(schema_info.c.oldest_code))
    if oldest is None or Version(code_version) < Version(oldest):
        raise SchemaMismatch(
            f"the database's schema is {found}, which takes sensorpool {oldest or 'newer'} or later, "
            f"and this is {code_version}: upgrade sensorpool"
        )


def _known() -> set[str]:
    """Return the revisions that this version knows."""
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(migrations_folder())).walk_revisions()}


def _current(database: Database) -> str | None:
    def ask(connection: Connection) -> str | None:
        if not inspect(connection).has_table(VERSION_TABLE, schema=database.schema or None):
            return None
        return connection.execute(
            select(table(VERSION_TABLE, column("version_num"), schema=database.schema or None))
        ).scalar()

    return database.read(ask)


def _upgrade(database: Database) -> None:
    """Have Alembic change the schema in one transaction, which waits only briefly for each lock.

    On PostgreSQL it waits until no other process changes the schema, and begins with what that one left.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with database.engine.begin() as connection:
        connection.execution_options(schema_translate_map=None)  # the search_path names the schema to Alembic
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock({}, {})".format(*_UPGRADE))
        elif connection.dialect.name in {"mysql", "mariadb"}:
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {LOCK_WAIT}")
        if schema := database.schema:
            if not inspect(connection).has_schema(schema):  # IF NOT EXISTS needs the right to make one all the same
                connection.execute(CreateSchema(schema, if_not_exists=True))
            connection.execute(text(f'SET LOCAL search_path TO "{schema}"'))  # the setting's pattern has no quotes
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
