"""The versions of the schema. Alembic owns the schema; this module calls Alembic."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packaging.version import Version
from sqlalchemy import Connection, column, inspect, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema

from sensorpool.errors import Refused, SchemaMismatch, SettingsError, Unreachable
from sensorpool.instrumentation.redaction import error_text, one_line
from sensorpool.model.urls import is_in_memory
from sensorpool.store import blocking
from sensorpool.store.codes import cause_of, is_conflict, is_missing_schema, is_table_there, is_unreachable
from sensorpool.store.database import Database
from sensorpool.store.schema import metadata, schema_info

VERSION_TABLE = "sensorpool_alembic_version"
MEND = "run `sensorpool db upgrade`"
PATIENCE = 60.0  # seconds of further attempts while other transactions hold locks on our tables
_NAMED = ("head", "heads", "base")  # Alembic's own names of revisions
_PAUSE = 3.0  # seconds between two attempts, in which all waiting statements go on


def migrations_folder() -> Path:
    """Return the folder of the migrations: in a wheel within the package, in a checkout beside it."""
    package = Path(__file__).resolve().parents[1]
    packed = package / "migrations"
    return packed if packed.is_dir() else package.parent / "migrations"


def upgrade(
    url: str,
    revision: str = "head",
    *,
    schema: str = "",
    patience: float = PATIENCE,
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Bring the schema to a revision; return the revision's name. A second run changes nothing.

    A schema that a newer version of sensorpool has made stays as it is: `check` says whether this version may use it.

    :param schema: the PostgreSQL schema of our tables; it is made if it does not exist.
    :param patience: seconds of further attempts while other transactions (often a backup) hold the locks.
    :param say: is called with a line that names the transaction that is waited for.
    :raises Unreachable: when the database does not answer.
    :raises Refused: when there is no such revision.
    :raises SettingsError: when the database is in memory and would end with this process.
    """
    from alembic import command

    if is_in_memory(url):
        raise SettingsError(
            "SENSORPOOL_DATABASE_URL names an SQLite database in memory, which ends with this process: "
            "name a file, like sqlite:////path/to/pool.db, or a server"
        )
    if not revision.strip():
        raise Refused("a revision has a name: head is the newest")
    if revision not in _NAMED and revision not in _known():
        raise Refused(f"there is no revision {revision}: choose {', '.join(sorted(_known()))}, or head, the newest")
    goal = head() if revision == "head" else revision
    if revision == "head" and (found := current(url, schema=schema)) is not None and found not in _known():
        return found
    _change(url, schema, lambda config: command.upgrade(config, revision), goal, patience, say)
    return current(url, schema=schema) or "base"


def downgrade(url: str, revision: str, *, schema: str = "", patience: float = PATIENCE) -> str:
    """Take the schema back to a revision (``base`` drops all tables); return the revision's name.

    :raises Unreachable: when the database does not answer.
    :raises Refused: when there is no such revision.
    """
    from alembic import command

    _change(url, schema, lambda config: command.downgrade(config, revision), revision, patience, lambda _: None)
    return current(url, schema=schema) or "base"


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


def _change(
    url: str, schema: str, act: Callable[[Any], None], goal: str, patience: float, say: Callable[[str], None]
) -> None:
    """Have Alembic do ``act`` in one transaction; while other transactions hold the locks, try again for a while.

    Each attempt waits only briefly, because all statements on a table queue up behind a change of it.
    """
    database = Database(url)
    names = [*metadata.tables, VERSION_TABLE]
    deadline, has_said = time.monotonic() + patience, False
    try:
        while True:
            begun: list[str] = []
            try:
                # PostgreSQL's tables may be in another schema, and need no lock before the change
                is_there = database.engine.dialect.name != "postgresql" and _current(database) == goal
                _attempt(database, schema, [] if is_there else names, act, begun)
                return
            except DBAPIError as error:
                if is_unreachable(error):
                    _current(database)  # raises a clear one-line error if the database is still away
                    raise Unreachable(f"the schema was left alone: {one_line(error.orig or error)}") from error
                if not is_conflict(error):
                    _explain(error)
                    raise
                if database.engine.dialect.name == "sqlite":
                    raise Unreachable(f"the database is busy, its schema was left alone: {error.orig}") from error
                who = database.read(blocking.holder, schema, names)
                if begun and database.engine.dialect.name != "postgresql":
                    raise Unreachable(
                        f"the database is busy, and its schema may be half done, for it takes none back ({who}): "
                        "restore it, or finish it by hand"
                    ) from error
                if time.monotonic() + _PAUSE > deadline:
                    raise Unreachable(
                        f"the database is busy, its schema was left alone: {who}; end that, and run it again"
                    ) from error
            if not has_said:
                say(f"waits for a lock, up to {patience:g} s: {who}")
                has_said = True
            time.sleep(_PAUSE)
    finally:
        database.dispose()


def _explain(error: DBAPIError) -> None:
    """Raise a clearer error where the tables that are to be made have no place, or are there already.

    :raises SettingsError: when they have no schema, or the schema has such tables of which no revision is known.
    """
    if is_missing_schema(error):
        raise SettingsError(
            "the schema was left alone: the search_path of this role names no schema that exists: "
            "name one in SENSORPOOL_DATABASE_SCHEMA, or mend the search_path"
        ) from error
    if is_table_there(error):
        raise SettingsError(
            f"the schema was left alone: {error_text(cause_of(error))}, but {VERSION_TABLE} does not say of which "
            "version: restore that table, or name an empty schema in SENSORPOOL_DATABASE_SCHEMA or another database"
        ) from error


def _attempt(database: Database, schema: str, names: list[str], act: Callable[[Any], None], begun: list[str]) -> None:
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    try:
        with database.engine.begin() as connection:
            blocking.bound(connection, names)
            blocking.take_turn(connection)
            begun.append("the change")
            if schema:
                if not inspect(connection).has_schema(schema):  # IF NOT EXISTS needs the right to make one all the same
                    connection.execute(CreateSchema(schema, if_not_exists=True))
                connection.execute(text(f'SET LOCAL search_path TO "{schema}"'))  # the setting's pattern has no quotes
            config.attributes["connection"] = connection
            act(config)
    except CommandError as error:
        raise Refused(f"the schema was left alone: {error_text(error)}") from None
