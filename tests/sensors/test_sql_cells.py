"""SqlSensor and cells that Python's types cannot hold, and statements that have no cursor."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from sensorpool.sensors import SqlSensor
from sensorpool.sensors.connections import PokeFailed

from .warehouse import close_engines

SetConnection = Callable[[str, str], None]
NOT_YET = [
    *("NULL::date", "interval '0'", "'empty'::int4range", "'empty'::daterange", "'{}'::datemultirange"),
    *("'{}'::date[]", "'null'::jsonb", "'false'::json", "'[]'::jsonb", "0::oid", "'-0'::float8", "''::tsvector"),
]
HOLD = [
    *("now()", "interval '1 day'", "'[1,2]'::int4range", "'{[1,2]}'::int4multirange", "ARRAY[NULL::date]"),
    *("'{{1,2},{3,4}}'::int[]", "'NaN'::numeric", "'Infinity'::numeric", "12::money", "'{\"a\": 0}'::jsonb"),
    *("gen_random_uuid()", "'10.0.0.0/8'::cidr", "'(0,0)'::point", "'100 years'::interval"),
]


@pytest.fixture(autouse=True)
def _no_engines_left() -> Iterator[None]:
    yield
    close_engines()


@pytest.fixture
def postgres(postgres_url: str, set_connection: SetConnection) -> str:
    set_connection("warehouse", postgres_url)
    return postgres_url


def poke(sql: str) -> bool:
    return SqlSensor(sql, conn_id="warehouse").poke({})


@pytest.mark.usefixtures("postgres")
def test_cells_of_many_types() -> None:
    assert [cell for cell in NOT_YET if poke(f"SELECT {cell}")] == []
    assert [cell for cell in HOLD if not poke(f"SELECT {cell}")] == []


@pytest.mark.usefixtures("postgres")
def test_a_cell_that_python_cannot_hold_is_an_error() -> None:
    with pytest.raises(PokeFailed, match=r"date too large.*infinity"):
        poke("SELECT 'infinity'::date")
    assert poke("SELECT 'infinity'::date::text") is True


@pytest.mark.usefixtures("postgres")
def test_show_and_explain_are_asked_without_a_cursor() -> None:
    for sql in (
        "SHOW server_version",
        " explain SELECT 1;\n",
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT now()",
        "SHOW ALL",
    ):
        assert poke(sql) is True
    for sql in ("EXPLAIN ANALYZE DELETE FROM pg_statistic", "SHOW work_mem; COMMIT; CREATE TABLE made (a int)"):
        with pytest.raises(PokeFailed, match=r"read-only transaction|syntax error"):
            poke(sql)
    assert poke("EXPLAIN ANALYZE CREATE TABLE made AS SELECT 1") is True, "its transaction is rolled back"
    assert poke("SELECT to_regclass('made') IS NULL") is True


@pytest.mark.usefixtures("postgres")
def test_a_row_without_a_cell_is_an_error() -> None:
    with pytest.raises(PokeFailed, match="returns no rows"):
        poke("SELECT FROM pg_class")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_texts_of_a_database_in_another_encoding_are_texts(
    encoding: str, postgres: str, set_connection: SetConnection
) -> None:
    name = f"in_{encoding.lower()}"
    engine = create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        made = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(text(made))
    set_connection("warehouse", engine.url.set(database=name).render_as_string(hide_password=False))
    try:
        assert [poke(f"SELECT '{cell}'") for cell in ("0", "", "1", "grün")] == [False, False, True, True]
    finally:
        close_engines()
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()


def test_a_zero_date_of_mariadb_is_not_yet(mariadb_url: str, set_connection: SetConnection) -> None:
    set_connection("warehouse", mariadb_url)
    engine = create_engine(mariadb_url)
    columns = {"day": "DATE", "at": "DATETIME", "exact": "DATETIME(6)", "stamp": "TIMESTAMP", "half": "DATE"}
    with engine.begin() as connection:
        connection.execute(text("SET sql_mode = 'ALLOW_INVALID_DATES'"))
        declared = ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
        connection.execute(text(f"CREATE TABLE ended ({declared})"))
        connection.execute(text("INSERT INTO ended VALUES (0, 0, 0, 0, '2026-00-00')"))
    try:
        assert {name: poke(f"SELECT {name} FROM ended") for name in columns} == {
            **dict.fromkeys(columns, False),
            "half": True,
        }
        assert poke("SELECT 1, ended.* FROM ended") is True
        with engine.begin() as connection:
            connection.execute(text("UPDATE ended SET day = '9999-12-31', at = now(), exact = now(6), stamp = now()"))
        assert [poke(f"SELECT {name} FROM ended") for name in columns] == [True] * len(columns)
        assert poke("SELECT CAST('-838:59:59' AS TIME), 1") is True
        assert poke("SHOW TABLES") is True
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE ended"))
        engine.dispose()


def test_a_text_of_sqlite_that_is_no_utf8_is_read(tmp_path: Path, set_connection: SetConnection) -> None:
    file = tmp_path / "odd.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE odd (name TEXT, size REAL)")
        connection.execute("INSERT INTO odd VALUES (CAST(x'ff66' AS TEXT), 9e999)")
    set_connection("warehouse", f"sqlite:///{file}")
    assert poke("SELECT name FROM odd") is True
    assert poke("SELECT 0, name FROM odd") is False
    assert poke("SELECT size, name FROM odd") is True
    assert poke("SELECT CAST(x'30' AS TEXT)") is False
    assert poke("EXPLAIN SELECT 1") is False, "its first cell is the address 0"
