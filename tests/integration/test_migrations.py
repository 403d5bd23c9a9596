"""The schema's versions on each kind of database: up, down, up again, and head equals the metadata."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text, update

from sensorpool import Pool, Settings, __version__, migrate
from sensorpool.errors import SchemaMismatch
from sensorpool.schema import metadata, schema_info
from sensorpool.store.database import Database


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'pool.db'}"
    migrated = str(request.getfixturevalue(f"{request.param}_database"))
    migrate.downgrade(migrated, "base")
    return migrated


def test_up_down_and_up_again(url: str) -> None:
    assert migrate.current(url) is None
    assert migrate.upgrade(url) == migrate.head()
    assert migrate.upgrade(url) == migrate.head()
    assert migrate.downgrade(url, "base") == "base"
    database = Database(url)
    left = set(inspect(database.engine).get_table_names())
    database.dispose()
    assert not left & set(metadata.tables)
    assert migrate.upgrade(url) == migrate.head()


def test_head_equals_the_metadata(url: str) -> None:
    migrate.upgrade(url)
    database = Database(url)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_type": True}
        )
        differences = compare_metadata(context, metadata)
    database.dispose()
    assert differences == []


def test_check_says_what_mends_it(url: str) -> None:
    database = Database(url)
    with pytest.raises(SchemaMismatch, match="no sensorpool tables: run `sensorpool db upgrade`"):
        migrate.check(database, __version__)
    migrate.upgrade(url)
    migrate.check(database, __version__)
    # a newer sensorpool has been here, and says which code may still use its schema
    with database.engine.begin() as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
    migrate.check(database, __version__)
    with database.engine.begin() as connection:
        connection.execute(update(schema_info).values(oldest_code="99.0"))
    with pytest.raises(SchemaMismatch, match="upgrade sensorpool"):
        migrate.check(database, __version__)
    database.dispose()


def test_a_schema_of_our_own_leaves_the_rest_of_the_database_alone(postgres_database: str) -> None:
    migrate.downgrade(postgres_database, "base")
    before = Database(postgres_database)
    with before.engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num varchar(32))"))  # somebody else's
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
    assert migrate.downgrade(postgres_database, "base", schema="pool") == "base"
    before.dispose()
