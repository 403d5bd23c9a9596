"""Reads that share a connection: as many round trips as questions, and a server that comes back is asked again."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import ProgrammingError

from sensorpool.errors import Unreachable
from sensorpool.store.database import Database


@pytest.fixture
def database(postgres_database: str) -> Iterator[Database]:
    made = Database(postgres_database)
    yield made
    made.dispose()


@pytest.fixture
def taken(database: Database) -> list[int]:
    """A number for each connection that is taken out of the pool."""
    found: list[int] = []
    event.listen(database.engine, "checkout", lambda *_: found.append(1))
    return found


def backend(connection: Connection) -> int:
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def kill(connection: Connection, pid: int) -> None:
    connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


def test_reads_share_a_connection_for_a_while(database: Database, taken: list[int]) -> None:
    with database.one_connection():
        assert taken == [], "none is taken before it is needed"
        assert len({database.read(backend) for _ in range(3)}) == 1
        with database.one_connection():
            database.read(backend)
        database.read(backend)
        assert len(taken) == 1
    pool: Any = database.engine.pool
    assert pool.checkedout() == 0
    database.read(backend)
    assert len(taken) == 2


def test_a_connection_that_was_lost_is_replaced(database: Database, postgres_database: str) -> None:
    other = Database(postgres_database)
    with database.one_connection():
        first = database.read(backend)
        other.read(kill, first)
        assert database.read(backend) not in {0, first}
        assert database.read(backend) == database.read(backend)
    other.dispose()


def test_a_server_that_stays_away_is_unreachable(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with database.one_connection():
        pid = database.read(backend)

        def refuse(*_: object, **__: object) -> None:
            raise database.engine.dialect.dbapi.OperationalError("connection refused")  # type: ignore[union-attr]

        monkeypatch.setattr(database.engine.pool, "_creator", refuse)
        other = Database(database.engine.url.render_as_string(hide_password=False))
        other.read(kill, pid)
        other.dispose()
        with pytest.raises(Unreachable, match="connection refused"):
            database.read(backend)
        with pytest.raises(Unreachable):
            database.read(backend)


def test_a_mistake_is_raised_once_and_spoils_nothing(database: Database, taken: list[int]) -> None:
    asked: list[int] = []

    def mistake(connection: Connection) -> None:
        asked.append(1)
        connection.execute(text("SELECT nonsense()"))

    with database.one_connection():
        database.read(backend)
        with pytest.raises(ProgrammingError):
            database.read(mistake)
        assert len(asked) == 1
        database.read(backend)
    assert len(taken) == 2


def test_another_thread_has_a_connection_of_its_own(database: Database, taken: list[int]) -> None:
    found: list[int] = []
    with database.one_connection():
        found.append(database.read(backend))
        thread = threading.Thread(target=lambda: found.append(database.read(backend)))
        thread.start()
        thread.join(30)
    assert found[0] != found[1]
    assert len(taken) == 2


def test_an_error_in_the_middle_of_a_statement_spoils_nothing_that_follows(database: Database) -> None:
    """A signal may raise it anywhere."""

    def struck(connection: Connection) -> None:
        result = connection.connection.driver_connection.pgconn  # type: ignore[union-attr]
        result.send_query(b"SELECT pg_sleep(0.1)")
        raise ZeroDivisionError

    with database.one_connection():
        first = database.read(backend)
        with pytest.raises(ZeroDivisionError):
            database.read(struck)
        assert database.read(backend) != first


def test_a_fork_has_a_connection_of_its_own(database: Database) -> None:
    with database.one_connection():
        first = database.read(backend)
        read, write = os.pipe()
        if not (child := os.fork()):
            try:
                os.write(write, str(database.read(backend)).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert int(os.read(read, 100)) not in {0, first}
        assert database.read(backend) == first
