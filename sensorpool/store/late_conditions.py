"""The groups whose condition is later than its family usually lands."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, update

from sensorpool.model.values import Milliseconds
from sensorpool.store import settling
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.landings import family_of
from sensorpool.store.schema import poke_group as g


class Waiting(NamedTuple):
    """What says when the condition of a group is late."""

    id: int
    family: int
    logical_date: Milliseconds | None
    registered_at: Milliseconds
    shardcode: int


_WAITING = (g.c.id, family_of(g.c), g.c.logical_date, g.c.registered_at, g.c.shardcode)


def waiting(connection: Connection, after_id: int, most: int) -> list[Waiting]:
    """Return the next groups by id that are not known to be late."""
    query = select(*_WAITING).where(g.c.id > after_id, g.c.late_since.is_(None)).order_by(g.c.id).limit(most)
    return [Waiting(*row) for row in connection.execute(query)]


def of_groups(connection: Connection, ids: Collection[int]) -> list[Waiting]:
    """Return these groups, as far as they exist."""
    return [Waiting(*row) for row in connection.execute(select(*_WAITING).where(among(g.c.id)), {"ids": list(ids)})]


def mark(connection: Connection, group_ids: Collection[int], now: Milliseconds) -> list[Any]:
    """Mark groups as late; return the rows of those that were not. Groups that others have locked are left."""
    settling.begin(connection)
    free = settling.lock_groups(connection, group_ids, free_only=True)
    if not free:
        return []
    not_late = select(g).where(among(g.c.id), g.c.late_since.is_(None)).order_by(g.c.id)
    new = list(connection.execute(not_late, {"ids": list(free)}).mappings())
    if new:
        connection.execute(update(g).where(among(g.c.id)).values(late_since=now), {"ids": [row["id"] for row in new]})
    return new


def count(connection: Connection) -> int:
    """Return how many groups are late."""
    return connection.execute(select(count_rows).where(g.c.late_since.is_not(None))).scalar_one()
