"""Which groups a wake-up concerns: looked up by indexes."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from sensorpool.store.schema import poke_group as g

_AT_ONCE = 1_000  # values in one statement
_ESCAPE = "\\"


class Woken(NamedTuple):
    """A group to be woken."""

    id: int
    shardcode: int


def of_digests(connection: Connection, digests: Collection[bytes], most: int) -> list[Woken]:
    """Return the groups with these identities."""
    return _some(connection, g.c.digest, list(digests), most)


def of_locations(connection: Connection, locations: Collection[str], most: int) -> list[Woken]:
    """Return the groups that wait for something at one of these locations."""
    return _some(connection, g.c.location, list(locations), most)


def below(connection: Connection, prefix: str, most: int) -> list[Woken]:
    """Return the groups whose location begins with a prefix."""
    pattern = "".join(f"{_ESCAPE}{letter}" if letter in f"%_{_ESCAPE}" else letter for letter in prefix)
    return _rows(
        connection, select(g.c.id, g.c.shardcode).where(g.c.location.like(f"{pattern}%", escape=_ESCAPE)), most
    )


def _some(connection: Connection, column: Any, values: list[Any], most: int) -> list[Woken]:
    found: list[Woken] = []
    for start in range(0, len(values), _AT_ONCE):
        wanted = column.in_(values[start : start + _AT_ONCE])
        found += _rows(connection, select(g.c.id, g.c.shardcode).where(wanted), most - len(found))
    return found


def _rows(connection: Connection, statement: Select[Any], most: int) -> list[Woken]:
    return [Woken(row[0], row[1]) for row in connection.execute(statement.limit(most))] if most > 0 else []
