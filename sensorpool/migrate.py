"""The schema's versions: Alembic owns it; this asks and tells Alembic."""

from pathlib import Path
from typing import Any

from packaging.version import Version
from sqlalchemy import Connection, column, inspect, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema

from sensorpool.errors import Refused, SchemaMismatch, Unreachable
from sensorpool.schema import schema_info
from sensorpool.store.database import Database, is_conflict, is_unreachable

VERSION_TABLE = "sensorpool_alembic_version"
MEND = "run `sensorpool db upgrade`"


def migrations_folder() -> Path:
    """Return where the migrations are: in the wheel beside this file, in a checkout one level up."""
    here = Path(__file__).resolve().parent
    packed = here / "migrations"
    return packed if packed.is_dir() else here.parent / "migrations"


def upgrade(url: str, revision: str = "head", *, schema: str = "") -> str:
    """Bring the schema to a revision and return its name. Running it again changes nothing.

    :param schema: where our tables are, on PostgreSQL; it is made if it is not there.
    :raises Unreachable: when the database does not answer.
    :raises Refused: when there is no such revision.
    """
    from alembic import command

    if not revision.strip():
        raise Refused("a revision has a name: head is the newest")
    _with_connection(url, schema, lambda config, _: command.upgrade(config, revision))
    return current(url, schema=schema) or "base"


def downgrade(url: str, revision: str, *, schema: str = "") -> str:
    """Take the schema back to a revision (``base`` drops all of it) and return its name."""
    from alembic import command

    _with_connection(url, schema, lambda config, _: command.downgrade(config, revision))
    return current(url, schema=schema) or "base"


def current(url: str, *, schema: str = "") -> str | None:
    """Return the revision that the database has, or None if it has none of our tables."""
    database = Database(url, schema=schema)
    try:
        return _current(database)
    finally:
        database.dispose()


def head() -> str:
    """Return the revision that this code belongs to."""
    from alembic.script import ScriptDirectory

    name: str | None = ScriptDirectory(str(migrations_folder())).get_current_head()
    assert name is not None
    return name


def check(database: Database, code_version: str) -> None:
    """Make sure that this code may use the database's schema.

    A schema newer than this code is fine as long as it says that it still takes code this old (migrations expand
    first and contract a version later).

    :raises SchemaMismatch: naming the command that mends it.
    :raises Unreachable: when the database does not answer.
    """
    from alembic.script import ScriptDirectory

    found = _current(database)
    if found is None:
        raise SchemaMismatch(f"the database has no sensorpool tables: {MEND}")
    if found == head():
        return
    known = {script.revision for script in ScriptDirectory(str(migrations_folder())).walk_revisions()}
    if found in known:
        raise SchemaMismatch(f"the database's schema is {found}, older than this version's {head()}: {MEND}")
    oldest = database.read(lambda connection: connection.execute(select(schema_info.c.oldest_code)).scalar())
    if oldest is None or Version(code_version) < Version(oldest):
        raise SchemaMismatch(
            f"the database's schema is {found}, which takes sensorpool {oldest or 'newer'} or later, "
            f"and this is {code_version}: upgrade sensorpool"
        )


def _current(database: Database) -> str | None:
    def ask(connection: Connection) -> str | None:
        if not inspect(connection).has_table(VERSION_TABLE, schema=database.schema or None):
            return None
        return connection.execute(
            select(table(VERSION_TABLE, column("version_num"), schema=database.schema or None))
        ).scalar()

    return database.read(ask)


def _with_connection(url: str, schema: str, act: Any) -> None:
    from alembic.config import Config
    from alembic.util import CommandError

    database = Database(url)
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    try:
        with database.engine.begin() as connection:
            if schema:
                if not inspect(connection).has_schema(schema):  # IF NOT EXISTS asks for the right to make it anyway
                    connection.execute(CreateSchema(schema, if_not_exists=True))
                connection.execute(text(f'SET LOCAL search_path TO "{schema}"'))  # the setting's pattern has no quotes
            config.attributes["connection"] = connection
            act(config, connection)
    except CommandError as error:
        raise Refused(f"the schema was left alone: {' '.join(str(error).split())}") from None
    except DBAPIError as error:
        if is_unreachable(error):
            _current(database)  # raises the one clear line
            raise Unreachable("the database went away") from error
        if is_conflict(error):
            raise Unreachable(f"the database is busy, its schema was left alone: {error.orig}") from error
        raise
    finally:
        database.dispose()
