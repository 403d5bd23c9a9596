"""The groups whose condition is later than its family usually lands."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, select, update

from sensorpool.model.values import Milliseconds
from sensorpool.store import settling
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.landings import family_of
from sensorpool.store.schema import poke_group as g


class Waiting(NamedTuple):
    """A group that is not known to be late."""

    id: int
    family: int
    logical_date: Milliseconds | None
    registered_at: Milliseconds


def waiting(connection: Connection, after_id: int, most: int) -> list[Waiting]:
    """Return the next groups by id that are not known to be late."""
    columns = (g.c.id, family_of(g.c), g.c.logical_date, g.c.registered_at)
    query = select(*columns).where(g.c.id > after_id, g.c.late_since.is_(None)).order_by(g.c.id).limit(most)
    return [Waiting(*row) for row in connection.execute(query)]


def mark(connection: Connection, group_ids: Collection[int], now: Milliseconds) -> int:
    """Note that groups are late; return how many were not known to be so. Groups that others have locked are left."""
    free = settling.lock_groups(connection, group_ids, free_only=True)
    late = update(g).where(among(g.c.id), g.c.late_since.is_(None)).values(late_since=now)
    return connection.execute(late, {"ids": free}).rowcount if free else 0


def count(connection: Connection) -> int:
    """Return how many groups are late."""
    return connection.execute(select(count_rows).where(g.c.late_since.is_not(None))).scalar_one()
