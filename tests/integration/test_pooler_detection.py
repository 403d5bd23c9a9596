"""Statements are prepared where the connection ends at the server, and not behind a pooler."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, text

from sensorpool import Instance, Pool, Settings

SENSOR = "harness.scripted.ScriptedSensor"
MANY = 20  # the driver prepares a statement after five uses


@pytest.fixture
def pool(postgres_database: str, tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(Settings.load(database_url=postgres_database, sensors_enabled=SENSOR))
    yield pool
    pool.close()


def register(pool: Pool, name: object, run_id: str = "r", **more: Any) -> Instance:
    context = {"folder": "/nowhere", "name": str(name)}
    return pool.register(SENSOR, context, dag_id="d", task_id=str(name), run_id=run_id, **more)


def register_many(pool: Pool, run_id: str = "r") -> list[Instance]:
    return [register(pool, n, run_id) for n in range(MANY)]


@contextmanager
def the_connection(pool: Pool) -> Iterator[Connection]:
    """The one connection that the pool has opened."""
    with pool.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert pool.database.engine.pool.checkedin() == 0  # type: ignore[attr-defined]
        yield connection


def prepared(pool: Pool) -> list[str]:
    """Return the prepared statements of the connection."""
    with the_connection(pool) as connection:
        return list(connection.execute(text("SELECT statement FROM pg_prepared_statements")).scalars())


def lose(pool: Pool) -> None:
    """Have the server forget the statements, as another server's connection does that a pooler gives."""
    with the_connection(pool) as connection:
        driver: Any = connection.connection.driver_connection
        driver.pgconn.exec_(b"DEALLOCATE ALL")


def test_the_statements_of_a_registration_are_prepared(pool: Pool) -> None:
    made = register_many(pool)
    assert all(each.created and each.opened for each in made)
    assert {"INSERT", "found"} <= {word for statement in prepared(pool) for word in statement.split()}


def test_a_process_with_a_few_statements_prepares_none(pool: Pool) -> None:
    register(pool, "x")
    assert prepared(pool) == []


def test_nothing_is_prepared_behind_a_pooler(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says a process id of its own making."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    assert all(each.created for each in register_many(pool))
    assert prepared(pool) == []


def test_what_the_server_has_forgotten_is_done_without(pool: Pool) -> None:
    register_many(pool)
    lose(pool)
    made = register_many(pool, "again")
    assert all(each.created for each in made)
    assert prepared(pool) == [], "the server is not trusted any more"


def test_a_name_that_another_has_taken_does_no_harm(pool: Pool) -> None:
    register(pool, "first")
    with the_connection(pool) as connection:
        for n in range(MANY):
            connection.exec_driver_sql(f"PREPARE _pg3_{n} AS SELECT 1")
    assert all(each.created for each in register_many(pool))


def test_a_higher_try_cancels_the_lower_and_a_lower_is_refused(pool: Pool) -> None:
    first = register_many(pool)
    register(pool, 0, try_number=2)
    assert pool.wait([first[0].id], 0) == {first[0].id: "cancelled"}
    again = register(pool, 1)
    assert (again.id, again.created) == (first[1].id, False)


def test_columns_may_come(pool: Pool) -> None:
    register_many(pool)
    with the_connection(pool) as connection:
        for table in ("poke_group", "sensor_instance"):
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN of_the_next_version text")
    assert all(each.created for each in register_many(pool, "again"))
