"""The schema's versions on each kind of database: head equals the metadata, and an upgrade waits for locks."""

import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import Connection, MetaData, inspect, text, update

from harness.until import until
from sensorpool import Pool, Settings, __version__
from sensorpool.cli.main import main
from sensorpool.errors import SchemaMismatch, Unreachable
from sensorpool.store import migrate
from sensorpool.store.database import Database
from sensorpool.store.schema import metadata, schema_info, sensor_instance

OF_POSTGRES = {"ix_poke_group_late_since"}
OLDER = "those of an older version: run `sensorpool db upgrade`"
NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade():
    op.add_column("sensor_instance", sa.Column("more", sa.Integer))
"""


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'pool.db'}"
    migrated = str(request.getfixturevalue(f"{request.param}_database"))
    empty(migrated)
    return migrated


def empty(url: str) -> None:
    """Drop all tables."""
    database = Database(url)
    with database.engine.begin() as connection:
        metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE {migrate.VERSION_TABLE}"))
    database.dispose()


def test_a_second_upgrade_changes_nothing(url: str) -> None:
    assert migrate.current(url) is None
    assert migrate.upgrade(url) == migrate.head()
    assert migrate.upgrade(url) == migrate.head()
    assert migrate.current(url) == migrate.head()


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a database with tables that the code is a migration ahead of. A wait for a lock takes a second."""
    found = str(request.getfixturevalue(f"{request.param}_database"))
    newer = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), newer)
    (newer / "versions" / "0002_next.py").write_text(NEXT)
    monkeypatch.setattr(migrate, "migrations_folder", lambda: newer)
    monkeypatch.setattr(migrate, "LOCK_WAIT", 1)
    monkeypatch.setattr(migrate, "_PAUSE", 0.1)
    return found


def test_a_backup_is_waited_for_for_a_while(old: str) -> None:
    """Other statements go on meanwhile; no change is half done; and the upgrade ends when the backup has ended."""
    database, said = Database(old), list[str]()
    question = text("SELECT count(*) FROM sensorpool_schema")
    waits: list[float] = []

    def others_ask(line: str) -> None:
        said.append(line)
        started = time.monotonic()
        database.read(lambda connection: connection.execute(question).scalar())
        waits.append(time.monotonic() - started)

    with database.engine.connect() as backup:
        if backup.dialect.name != "postgresql":
            backup.execute(text("SET SESSION idle_transaction_timeout = 0"))
        backup.execute(text("SELECT count(*) FROM sensor_instance")).scalar()
        backup.execute(question).scalar()
        with pytest.raises(Unreachable) as busy:
            migrate.upgrade(old, patience=2.0, say=others_ask)
        [line] = str(busy.value).splitlines()
        assert line.startswith("the database is busy, its schema was left alone: ")
        assert [each.startswith("waits for a lock, up to 2 s: ") for each in said] == [True]
        assert waits < [1.0]
        assert migrate.current(old) == "0001"
        assert "more" not in {each["name"] for each in inspect(database.engine).get_columns("sensor_instance")}
        ending = threading.Timer(1.5, backup.close)
        ending.start()
        assert migrate.upgrade(old, patience=60.0) == migrate.head()
        ending.join()
    database.dispose()


def test_of_two_upgrades_at_once_the_second_waits_and_finds_all_done(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty(postgres_database)
    database, second = Database(postgres_database), list[subprocess.Popen[str]]()
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    change = command.upgrade

    def change_and_hold(*arguments: object) -> None:
        change(*arguments)
        second.append(
            subprocess.Popen(
                [sys.executable, "-m", "sensorpool", "db", "upgrade"],
                env=os.environ | {"SENSORPOOL_DATABASE_URL": postgres_database},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        until("the second to wait", lambda: database.read(Connection.scalar, waiting))

    monkeypatch.setattr(command, "upgrade", change_and_hold)
    assert migrate.upgrade(postgres_database) == migrate.head()
    said, wrong = second[0].communicate(timeout=60)
    assert second[0].returncode == 0, wrong
    assert migrate.head() in said
    assert migrate.current(postgres_database) == migrate.head()
    database.dispose()


def test_head_equals_the_metadata(url: str) -> None:
    migrate.upgrade(url)
    database = Database(url)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_type": True}
        )
        differences = compare_metadata(context, _of(connection.dialect.name))
    database.dispose()
    assert differences == []


def _of(dialect: str) -> MetaData:
    """Return the tables with those indexes that they have on this kind of database; Alembic would take them all."""
    foreign = set() if dialect == "postgresql" else OF_POSTGRES
    found = MetaData(naming_convention=metadata.naming_convention)
    for table in metadata.sorted_tables:
        copied = table.to_metadata(found)
        copied.indexes -= {index for index in copied.indexes if index.name in foreign}
    return found


def test_the_end_of_a_row_touches_no_index(postgres_database: str) -> None:
    """Alembic does not compare how full the pages are."""
    database = Database(postgres_database)
    options = "SELECT array_to_string(reloptions, ',') FROM pg_class WHERE relname = 'sensor_instance'"
    full = sensor_instance.dialect_options["postgresql"]["with"]["fillfactor"]
    assert database.read(lambda c: c.execute(text(options)).scalar()) == f"fillfactor={full}"
    database.dispose()


def test_check_says_what_mends_it(url: str) -> None:
    database = Database(url)
    with pytest.raises(SchemaMismatch, match="no sensorpool tables: run `sensorpool db upgrade`"):
        migrate.check(database, __version__)
    migrate.upgrade(url)
    migrate.check(database, __version__)
    # a newer sensorpool has upgraded the schema, and says which code may still use it
    with database.engine.begin() as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
    migrate.check(database, __version__)
    upgrade = partial(CliRunner().invoke, main, ["db", "upgrade"], env={"SENSORPOOL_DATABASE_URL": url})
    rolled_back = upgrade()
    assert rolled_back.exit_code == 0, rolled_back.output
    assert "the schema is 9999, newer than this version's" in rolled_back.output
    with database.engine.begin() as connection:
        connection.execute(update(schema_info).values(oldest_code="99.0"))
    with pytest.raises(SchemaMismatch, match="upgrade sensorpool"):
        migrate.check(database, __version__)
    refused = upgrade()
    assert refused.exit_code == 1
    assert "upgrade sensorpool" in refused.output
    database.dispose()


def test_a_schema_of_our_own_leaves_the_rest_of_the_database_alone(postgres_database: str) -> None:
    empty(postgres_database)
    before = Database(postgres_database)
    with before.engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num varchar(32))"))  # another application's
        connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
    assert migrate.upgrade(postgres_database, schema="pool") == migrate.head()
    assert migrate.upgrade(postgres_database, schema="pool") == migrate.head()
    assert migrate.current(postgres_database) is None
    theirs = inspect(before.engine).get_table_names()
    assert set(theirs) - {migrate.VERSION_TABLE} == {"alembic_version"}
    pool = Pool(
        Settings.load(
            database_url=postgres_database.replace("+psycopg", "+psycopg2"),  # as Airflow spells it
            database_schema="pool",
            sensors_enabled="sensorpool.sensors.TimeSensor",
        )
    )
    instance = pool.register(
        "sensorpool.sensors.TimeSensor", {"target_time": "2100-01-01T00:00:00Z"}, external_id="abc"
    )
    assert pool.cancel(instance.id) == "cancelled"
    migrate.check(pool.database, __version__)
    pool.close()
    before.dispose()


def _run(url: str, *words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(main, words, env={"SENSORPOOL_DATABASE_URL": url})
    return ended.exit_code, ended.output


OLDER_TABLES = ["ALTER TABLE sensor_instance DROP COLUMN ending", "DROP TABLE sensor_instance"]


@pytest.mark.parametrize("lacks", OLDER_TABLES)
@pytest.mark.parametrize("command", [("status",), ("show", "1")])
def test_a_command_on_older_tables_names_the_mend(tmp_path: Path, lacks: str, command: tuple[str, ...]) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    migrate.upgrade(url)
    database = Database(url)
    with database.engine.begin() as connection:
        connection.execute(text(lacks))
    database.dispose()
    assert _run(url, *command) == (1, f"sensorpool: the database has no sensorpool tables, or {OLDER}\n")
