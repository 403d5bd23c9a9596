"""Rows come into a statement of PostgreSQL as they are, whatever their values."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from sensorpool import Pool, Settings
from sensorpool.store import columns
from sensorpool.store.database import fetch

TYPES = {"digest": "bytea", "number": "int8", "text": "text", "note": "text", "place": "int4"}
LEAST, MOST = -(2**63), 2**63 - 1


@pytest.fixture
def pool(postgres_database: str) -> Iterator[Pool]:
    pool = Pool(Settings.load(database_url=postgres_database))
    yield pool
    pool.close()


@pytest.mark.parametrize(
    "rows",
    [
        [(b"\x00\xff", LEAST, "a", None, -1)],
        [(b"\x00", 1, "same", None, n) for n in range(1000)],
        [(bytes([n]), MOST - n, f"{n}", "same", n) for n in range(200)],
        [(b"", LEAST, "", None, 0), (b"\x1f", MOST, "", "", 0)],
        [(b"'", None, "a,b", "{}", 1), (b'"', 2, '"a"\\', None, 1), (b"%", None, "100 %s %(x)s", "NULL", 1)],
        [(b"", 0, text, text, n) for n, text in enumerate(["NULL", "null", "'", '"', "\\", "{", " ", "", "é💣\n\t"])],
        [(b"", 0, "a\x1fb", "x", 0), (b"", 0, "c", "y", 0)],
        [(b"", 0, "\x1f", "x", 0), (b"", 0, "", "y", 0)],
    ],
    ids=["one", "one column differs", "most differ", "empty", "odd", "odd texts", "our separator", "only that"],
)
def test_rows_are_read_as_they_are_and_in_their_order(pool: Pool, rows: list[tuple[Any, ...]]) -> None:
    new, values = columns.source("x", TYPES, rows)
    found = pool.database.read(fetch, f"SELECT {', '.join(TYPES)} FROM {new}", values)
    assert [tuple(row) for row in found] == rows


class Number(int, Enum):
    """A number that is spelt otherwise."""

    ONE = 1
    TWO = 2


def test_a_number_of_an_enumeration_is_a_number(pool: Pool) -> None:
    new, values = columns.source("x", {"place": "int4"}, [(Number.ONE,), (Number.TWO,)])
    assert [tuple(row) for row in pool.database.read(fetch, f"SELECT place FROM {new}", values)] == [(1,), (2,)]


def test_a_single_row_has_the_same_source_by_itself() -> None:
    row = (b"x", 1, "a", None, 2)
    assert columns.source("x", TYPES, [row]) == (columns.of_one("x", TYPES), columns.values_of_one("x", row))
