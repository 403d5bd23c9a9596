"""SqlSensor, against SQLite files, a PostgreSQL server and a MariaDB server."""

import gc
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from sensorpool.errors import InfraFailure, SettingsError
from sensorpool.sensors import SqlSensor, engines, shared
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.sql import _holds

from .warehouse import close_engines

SetConnection = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def _no_engines_left() -> Iterator[None]:
    yield
    close_engines()


@pytest.fixture
def file(tmp_path: Path, set_connection: SetConnection) -> Path:
    path = tmp_path / "ware house?#%41.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE landed (day TEXT, rows INTEGER)")
    set_connection("warehouse", f"sqlite:///{path}".replace("?", "%3F") if False else str(_sqlite_url(path)))
    return path


def _sqlite_url(path: Path) -> str:
    return make_url("sqlite://").set(database=str(path)).render_as_string()


@pytest.fixture
def postgres(postgres_url: str, set_connection: SetConnection) -> Iterator[Engine]:
    set_connection("warehouse", postgres_url)
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS landed_days"))
        connection.execute(text("CREATE TABLE landed_days (day text)"))
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE landed_days"))
    engine.dispose()


def sensor(sql: str, **parameters: Any) -> SqlSensor:
    return SqlSensor(sql, conn_id="warehouse", parameters=parameters or None)


@pytest.mark.parametrize(
    ("cell", "holds"),
    [
        *((cell, False) for cell in ("NULL", "0", "0.0", "''", "'0'", "x''", "x'00'", "x'000000'")),
        *((cell, True) for cell in ("1", "-1", "0.5", "'a'", "' '", "'00'", "'false'", "x'01'", "x'0001'", "x'0100'")),
    ],
)
@pytest.mark.usefixtures("file")
def test_the_first_cell_decides(cell: str, holds: bool) -> None:
    assert sensor(f"SELECT {cell}, 1").poke({}) is holds
    assert sensor(f"SELECT {cell} UNION ALL SELECT 1").poke({}) is holds


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_zeros_are_not_yet_whatever_their_type(kind: Any) -> None:
    assert [_holds(kind(cell)) for cell in (b"", b"\0", b"\0\0")] == [False] * 3
    assert [_holds(kind(cell)) for cell in (b"\1", b"\0\1", b"\1\0", b"\0\1\0")] == [True] * 4


def test_a_bit_of_mariadb_that_is_0_is_not_yet(mariadb_url: str, set_connection: SetConnection) -> None:
    set_connection("warehouse", mariadb_url)
    engine = create_engine(mariadb_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE flags (ready BIT(1), parts BIT(16), fine BOOLEAN, code BINARY(2))"))
        connection.execute(text("INSERT INTO flags VALUES (b'0', b'0', FALSE, x'0000')"))
    try:
        columns = ("ready", "parts", "fine", "code")
        with engine.connect() as connection:
            assert connection.execute(text("SELECT ready FROM flags")).scalar_one() == b"\0"
        assert [sensor(f"SELECT {column} FROM flags").poke({}) for column in columns] == [False] * 4
        with engine.begin() as connection:
            connection.execute(text("UPDATE flags SET ready = b'1', parts = 256, fine = TRUE, code = x'0001'"))
        assert [sensor(f"SELECT {column} FROM flags").poke({}) for column in columns] == [True] * 4
        assert sensor("SELECT NULL & b'1'").poke({}) is False
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE flags"))
        engine.dispose()


def test_a_row_that_comes(file: Path) -> None:
    waiting = sensor("SELECT rows FROM landed WHERE day = :day", day="'; DROP TABLE landed; --")
    assert waiting.poke({}) is False
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO landed VALUES (?, 5)", ["'; DROP TABLE landed; --"])
    assert waiting.poke({}) is True


@pytest.mark.usefixtures("file")
def test_what_a_subclass_changes_between_pokes_is_asked() -> None:
    changing = sensor("SELECT :value", value=0)
    assert changing.poke({}) is False
    assert changing.parameters is not None
    changing.parameters["value"] = 1
    assert changing.poke({}) is True
    changing.sql = "SELECT :value - 1"
    assert changing.poke({}) is False


@pytest.mark.usefixtures("file")
def test_parameters_of_all_kinds() -> None:
    for value in (1, 1.5, "a", True, 2**62, "grün ☃"):
        assert sensor("SELECT :value = :same", value=value, same=value).poke({}) is True
    assert sensor("SELECT :value IS NULL", value=None).poke({}) is True
    assert sensor("SELECT '12:30' = '12:30' AND ' \\:a' = ' ' || :colon || 'a'", colon=":").poke({}) is True


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("INSERT INTO landed VALUES ('x', 1)", "readonly database"),
        ("DROP TABLE landed", "readonly database"),
        ("UPDATE landed SET rows = 1 RETURNING rows", "readonly database"),
        ("BEGIN", "within a transaction|returns no rows"),
    ],
)
def test_a_mistake_is_an_error_and_poisons_nothing(file: Path, sql: str, said: str) -> None:
    for _ in range(10):
        with pytest.raises(PokeFailed, match=f"SENSORPOOL_CONN_WAREHOUSE: .*({said})|returns no rows") as caught:
            sensor(sql).poke({})
    assert not getattr(caught.value, "is_infra_failure", False)
    assert sensor("SELECT 1").poke({}) is True
    assert sensor("SELECT count(*) FROM landed").poke({}) is False


def test_a_locked_database_is_an_infra_failure(file: Path, set_connection: SetConnection) -> None:
    set_connection("warehouse", f"{_sqlite_url(file)}?timeout=0.01")
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InfraFailure, match="locked"):
            sensor("SELECT count(*) FROM landed").poke({})
        writer.execute("ROLLBACK")
    assert sensor("SELECT 1 + count(*) FROM landed").poke({})


def test_a_file_that_is_published_anew_is_seen(file: Path) -> None:
    waiting = sensor("SELECT count(*) FROM landed")
    assert waiting.poke({}) is False
    new = file.with_name("new.db")
    with closing(sqlite3.connect(new)) as connection, connection:
        connection.execute("CREATE TABLE landed (day TEXT)")
        connection.execute("INSERT INTO landed VALUES ('today')")
    assert waiting.poke({}) is False
    before = file.stat().st_ino
    new.replace(file)
    assert file.stat().st_ino != before
    assert waiting.poke({}) is True


def test_a_missing_file_is_an_infra_failure_and_is_not_made(tmp_path: Path, set_connection: SetConnection) -> None:
    set_connection("warehouse", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(InfraFailure, match="cannot be reached: unable to open database file"):
        sensor("SELECT 1").poke({})
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_an_infra_failure(set_connection: SetConnection) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for driver in ("postgresql+psycopg", "mysql+pymysql"):
        set_connection("warehouse", f"{driver}://me:hunter2@127.0.0.1:{port}/d")
        with pytest.raises(InfraFailure, match=r"cannot be reached: .*refused") as caught:
            sensor("SELECT 1").poke({})
        assert "hunter2" not in str(caught.value)
    gc.collect()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hunter2", "not a SQLAlchemy URL"),
        ("postgresql+psycopg://u:hunter2@h:port/d", "not a SQLAlchemy URL"),
        ("nosuch://u:hunter2@h/d", "does not know"),
        ("oracle+oracledb://u:hunter2@h/d", "needs the driver oracledb"),
        ("postgresql+asyncpg://u:hunter2@h/d", "asynchronous driver|needs the driver"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_a_malformed_connection_is_named_but_not_shown(set_connection: SetConnection, url: str, said: str) -> None:
    set_connection("warehouse", url)
    with pytest.raises(SettingsError, match=f"SENSORPOOL_CONN_WAREHOUSE .*({said})") as caught:
        sensor("SELECT 1").poke({})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("postgresql+psycopg://{}?sslmodee=require", 'invalid connection option "sslmodee"'),
        ("postgresql+psycopg://{}?connect_timeout=soon", "bad value for connect_timeout"),
        ("mysql+pymysql://{}?ssl_disabledd=1", "unexpected keyword argument 'ssl_disabledd'"),
        ("mysql+pymysql://{}?connect_timeout=-5", "connect_timeout should be >0"),
        ("mysql+pymysql://{}?charset=nope", "'encoding'"),
    ],
)
def test_an_option_that_the_driver_refuses_is_named_without_the_url(
    set_connection: SetConnection, options: str, said: str
) -> None:
    set_connection("warehouse", options.format("u:hunter2@127.0.0.1:1/d"))
    with pytest.raises(
        SettingsError, match=f"SENSORPOOL_CONN_WAREHOUSE: its driver refuses an option: .*{said}"
    ) as caught:
        sensor("SELECT 1").poke({})
    for secret in ("hunter2", "127.0.0.1"):
        assert secret not in str(caught.value)
    assert caught.value.__suppress_context__


def test_engines_are_shared_and_bounded(tmp_path: Path, set_connection: SetConnection) -> None:
    for number in range(engines.MAX_ENGINES + 3):
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as connection:
            connection.execute("CREATE TABLE t (a)")
        set_connection("warehouse", f"sqlite:///{tmp_path}/{number}.db")
        for _ in range(3):
            assert sensor("SELECT 1").poke({}) is True
    assert len(engines._engines) == engines.MAX_ENGINES


@pytest.mark.usefixtures("file")
def test_many_threads_share_a_few_connections() -> None:
    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(lambda number: sensor("SELECT :n", n=number).poke({}), range(1, 500)))
    assert len(engines._engines) == 1


_ZEROS = "decode('0000', 'hex')"


@pytest.mark.usefixtures("postgres")
def test_postgresql_decides_by_the_first_cell() -> None:
    for cell in ("NULL", "0", "0.0::numeric", "''", "'0'", "false", "ARRAY[]::int[]", "'{}'::jsonb", "B'0'", _ZEROS):
        assert sensor(f"SELECT {cell}, 1").poke({}) is False
    for cell in ("1", "true", "now()", "'f'", "'100%'", "B'1'", "decode('0001', 'hex')"):
        assert sensor(f"SELECT {cell}").poke({}) is True
    assert sensor("SELECT 1 WHERE false").poke({}) is False
    assert sensor("SELECT :day = '100%'", day="100%").poke({}) is True


def test_a_row_that_comes_to_postgresql(postgres: Engine) -> None:
    waiting = sensor("SELECT count(*) FROM landed_days WHERE day = :day", day="'; DROP TABLE landed_days; --")
    assert waiting.poke({}) is False
    with postgres.begin() as connection:
        connection.execute(text("INSERT INTO landed_days VALUES (:day)"), waiting.parameters)
    assert waiting.poke({}) is True


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT * FROM nowhere",
        "SELECT 1 / 0",
        "INSERT INTO landed_days VALUES ('x')",
        "INSERT INTO landed_days VALUES ('x') RETURNING 1",
        "WITH new AS (INSERT INTO landed_days VALUES ('x') RETURNING 1) SELECT * FROM new",
        "SELECT 1; INSERT INTO landed_days VALUES ('x')",
        "SELECT 1; COMMIT; INSERT INTO landed_days VALUES ('x')",
        "SELECT setval(pg_get_serial_sequence('landed_days', 'day'), 1) FROM nowhere",
    ],
)
@pytest.mark.usefixtures("postgres")
def test_a_mistake_on_postgresql_is_an_error_and_poisons_nothing(sql: str) -> None:
    for _ in range(10):
        with pytest.raises(PokeFailed, match="SENSORPOOL_CONN_WAREHOUSE: ") as caught:
            sensor(sql).poke({})
    assert "\n" not in str(caught.value)
    assert sensor("SELECT count(*) FROM landed_days").poke({}) is False


@pytest.mark.usefixtures("postgres")
def test_only_the_first_row_is_fetched() -> None:
    assert sensor("SELECT 1 / (3 - n) + 1 FROM generate_series(1, 3) AS n").poke({}) is True


def test_a_connection_that_the_server_closed_is_replaced(postgres: Engine) -> None:
    assert sensor("SELECT 1").poke({})
    _end_sessions(postgres)
    assert sensor("SELECT 1").poke({})


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("limit", [None, 60.0])
def test_a_statement_of_postgresql_reads_only_and_is_one(limit: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_seconds", limit)
    assert sensor("SELECT current_setting('transaction_read_only') = 'on'").poke({})
    seconds = "0" if limit is None else "61s"
    assert sensor("SELECT current_setting('statement_timeout') = :limit", limit=seconds).poke({})
    for sql in ("SELECT 1; SELECT 2", "SELECT 1; COMMIT"):
        with pytest.raises(PokeFailed):
            sensor(sql).poke({})
    assert sensor("SELECT 1").poke({})


class OtherDialect(PGDialect_psycopg):
    """A server that speaks PostgreSQL's protocol by the same driver."""

    name = "otherdb"
    supports_statement_cache = True


@pytest.mark.usefixtures("postgres")
def test_another_dialect_of_the_driver_begins_its_transactions_itself(
    postgres_url: str, set_connection: SetConnection
) -> None:
    registry.register("otherdb.psycopg", __name__, OtherDialect.__name__)
    other = make_url(postgres_url).set(drivername="otherdb+psycopg").render_as_string(hide_password=False)
    set_connection("warehouse", other)
    assert sensor("SELECT 1").poke({}) is True
    assert sensor("SELECT 1 WHERE false").poke({}) is False


@pytest.mark.usefixtures("postgres")
def test_a_percent_sign_stands_for_itself_on_postgresql() -> None:
    assert sensor("SELECT 'abc' LIKE 'a%' AND '5%' = '5' || '%'").poke({})
    assert sensor("SELECT 'abc' LIKE 'a%' AND '5%' = :is", **{"is": "5%"}).poke({})


# psycopg cannot close its cursor when the connection is gone, and complains when the cursor is collected
@pytest.mark.filterwarnings("ignore:.*ServerCursor.*:ResourceWarning")
@pytest.mark.usefixtures("postgres")
def test_a_connection_that_is_closed_during_a_poke_is_an_infra_failure() -> None:
    # what it says depends on whether the server's last words are read before its end is noticed
    with pytest.raises(InfraFailure, match=r"terminating connection|connection is lost|closed"):
        sensor("SELECT pg_terminate_backend(pg_backend_pid())").poke({})
    gc.collect()
    assert sensor("SELECT 1").poke({})


def test_a_statement_that_takes_too_long_is_an_infra_failure(postgres_url: str, set_connection: SetConnection) -> None:
    url = make_url(postgres_url).update_query_dict({"options": "-c statement_timeout=20"})
    set_connection("warehouse", url.render_as_string(hide_password=False))
    with pytest.raises(InfraFailure, match="statement timeout"):
        sensor("SELECT pg_sleep(60)").poke({})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # other tests may have left threads
@pytest.mark.usefixtures("postgres")
def test_a_forked_child_leaves_the_parents_connections_alone() -> None:
    session = "SELECT pg_backend_pid() = :pid"
    assert sensor("SELECT 1").poke({})
    (engine,) = engines._engines._things.values()
    with engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    child = os.fork()
    if not child:
        fine = False
        try:
            fine = not sensor(session, pid=pid).poke({}) and sensor("SELECT 1").poke({})
            gc.collect()
        finally:
            os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sensor(session, pid=pid).poke({})


def _end_sessions(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        )


@pytest.mark.parametrize(
    ("context", "error", "said"),
    [
        ({"sql": "", "conn_id": "a"}, ValueError, "sql is empty"),
        ({"sql": " ;\n", "conn_id": "a"}, ValueError, "sql is empty"),
        ({"sql": "SELECT '\0'", "conn_id": "a"}, ValueError, "NUL"),
        ({"sql": None, "conn_id": "a"}, TypeError, "sql is a string"),
        ({"sql": "SELECT 1", "conn_id": "postgresql://me:hunter2@h/d"}, ValueError, "names a connection"),
        ({"sql": "SELECT 1", "conn_id": None}, TypeError, "conn_id is a string"),
        ({"sql": "SELECT :a, :b", "conn_id": "a", "parameters": {"a": 1}}, ValueError, "names :b"),
        ({"sql": "SELECT :a", "conn_id": "a"}, ValueError, "names :a"),
        ({"sql": "SELECT 1", "conn_id": "a", "parameters": {"a": 1}}, ValueError, "does not name :a"),
        ({"sql": "SELECT :a", "conn_id": "a", "parameters": [1]}, TypeError, "parameters is an object"),
        ({"sql": "SELECT :a", "conn_id": "a", "parameters": {"a": [1]}}, TypeError, "give a scalar"),
        ({"sql": "SELECT :a", "conn_id": "a", "parameters": {1: 1}}, TypeError, "not a string"),
    ],
)
def test_refuses(context: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        SqlSensor(**context)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
