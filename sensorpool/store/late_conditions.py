"""The groups whose condition is later than its family usually lands, and which of them the hook was told of."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, or_, select, update

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
    shardcode: int


_WAITING = (g.c.id, family_of(g.c), g.c.logical_date, g.c.registered_at, g.c.shardcode)


def waiting(connection: Connection, after_id: int, most: int) -> list[Waiting]:
    """Return the next groups by id that are not known to be late."""
    query = select(*_WAITING).where(g.c.id > after_id, g.c.late_since.is_(None)).order_by(g.c.id).limit(most)
    return [Waiting(*row) for row in connection.execute(query)]


def of_groups(connection: Connection, ids: Collection[int]) -> list[Waiting]:
    """Return these groups, as far as they exist."""
    return [Waiting(*row) for row in connection.execute(select(*_WAITING).where(among(g.c.id)), {"ids": list(ids)})]


def mark(connection: Connection, group_ids: Collection[int], now: Milliseconds) -> set[int]:
    """Note that groups are late; return those that were not known to be so. Groups that others have locked are left.

    :param group_ids: one at least: where none is late, no transaction is due.
    """
    settling.begin(connection)
    free = settling.lock_groups(connection, group_ids, free_only=True)
    unknown = select(g.c.id).where(among(g.c.id), g.c.late_since.is_(None))
    new = set(connection.execute(unknown, {"ids": list(free)}).scalars()) if free else set()
    if new:
        connection.execute(update(g).where(among(g.c.id)).values(late_since=now), {"ids": list(new)})
    return new


def count(connection: Connection) -> int:
    """Return how many groups are late."""
    return connection.execute(select(count_rows).where(g.c.late_since.is_not(None))).scalar_one()


def untold(connection: Connection, before: Milliseconds, most: int) -> list[Any]:
    """Return late groups of which the hook was not told.

    :param before: a process that began to tell it before this time has failed, or is dead.
    """
    is_open = or_(g.c.late_told_at.is_(None), g.c.late_told_at.between(-before, -1))
    query = select(g).where(g.c.late_since.is_not(None), is_open)
    # those that were refused before come after the others, or they would keep them back
    query = query.order_by(g.c.late_told_at.is_not(None), g.c.late_since, g.c.id).limit(most)
    return list(connection.execute(query).mappings())


def is_refused(connection: Connection) -> bool:
    """Whether the hook did not take a group of which it was told, or is being told."""
    return connection.execute(select(g.c.id).where(g.c.late_told_at < 0).limit(1)).first() is not None


def claim(connection: Connection, group: Any, now: Milliseconds) -> bool:
    """Note that this process begins to tell the hook of a group; return False if another one has."""
    known = group["late_told_at"]
    same = g.c.late_told_at.is_(None) if known is None else g.c.late_told_at == known
    claimed = update(g).where(g.c.id == group["id"], same).values(late_told_at=-now)
    return connection.execute(claimed).rowcount == 1


def told(connection: Connection, group_id: int, now: Milliseconds) -> None:
    """Note that the hook was told of a group."""
    connection.execute(update(g).where(g.c.id == group_id).values(late_told_at=now))
