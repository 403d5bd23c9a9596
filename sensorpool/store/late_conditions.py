"""When conditions usually land, by the landings of their families, and which groups are later than that."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select, union_all, update

from sensorpool.model.states import Ending
from sensorpool.model.usual_landing import DAY, FEWEST, PastLanding, Series, usual_of
from sensorpool.model.values import Milliseconds
from sensorpool.store import settling
from sensorpool.store.database import Database
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.landings import family_of
from sensorpool.store.schema import landing
from sensorpool.store.schema import poke_group as g

_MOST = 120  # landings of a family, the newest ones
_LOOK_BACK = 400 * DAY
_LOOKED_UP = 1_000  # families in a statement that says which have enough landings
_AT_ONCE = 25  # families in a statement that reads landings
_KEPT = 3_600.0  # seconds
_MOST_FAMILIES = 20_000  # kept


class UsualLandings:
    """What is usual for families, as this process last read it. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: dict[int, tuple[float, Series]] = {}  # by family: when it was read, and what is usual

    def of(self, families: Collection[int], now: Milliseconds, most: int = _MOST_FAMILIES) -> dict[int, Series]:
        """Return what is usual for families, as far as it is known.

        :param most: families that are read from the database; the next call reads others.
        :raises Unreachable: when the database does not answer.
        """
        if len(self._kept) > _MOST_FAMILIES:
            self._kept = {}
        kept, here = self._kept, time.monotonic()
        unread = [family for family in families if family not in kept or here - kept[family][0] > _KEPT][:most]
        for start in range(0, len(unread), _LOOKED_UP):
            some = unread[start : start + _LOOKED_UP]
            known = self._database.read(families_with_landings, some, now)
            found: dict[int, Sequence[PastLanding]] = {}
            for place in range(0, len(known), _AT_ONCE):
                found |= self._database.read(newest_landings, known[place : place + _AT_ONCE], now)
            kept.update((family, (here, usual_of(found.get(family, ())))) for family in some)
        return {family: kept[family][1] for family in families if family in kept}


def families_with_landings(connection: Connection, families: Sequence[int], now: Milliseconds) -> list[int]:
    """Return those of these families that have landings enough for something to be usual: mostly a few."""
    c = landing.c
    counted = select(c.family).where(among(c.family), c.ended_at > now - _LOOK_BACK, c.ending == Ending.LANDED)
    enough = counted.group_by(c.family).having(count_rows >= FEWEST)
    return list(connection.execute(enough, {"ids": list(families)}).scalars())


def newest_landings(
    connection: Connection, families: Sequence[int], now: Milliseconds
) -> Mapping[int, Sequence[PastLanding]]:
    """Return the newest landings of each of a few families."""
    values = {"after": now - _LOOK_BACK} | {f"family_{place}": family for place, family in enumerate(families)}
    found: dict[int, list[PastLanding]] = {}
    for family, *row in connection.execute(_newest_landings(len(families)), values):
        found.setdefault(family, []).append(PastLanding._make(row))
    return found


@cache
def _newest_landings(families: int) -> Any:
    c = landing.c
    of_one = (
        select(c.family, c.logical_date, c.waiting_since, c.ended_at)
        .where(c.ended_at > bindparam("after"), c.ending == Ending.LANDED)
        .order_by(c.ended_at.desc())
        .limit(_MOST)
    )
    each = (of_one.where(c.family == bindparam(f"family_{place}")).subquery() for place in range(families))
    return union_all(*map(select, each))


class Awaited(NamedTuple):
    """What says when the condition of a group is late."""

    id: int
    family: int
    logical_date: Milliseconds | None
    registered_at: Milliseconds


_WAITING = (g.c.id, family_of(g.c), g.c.logical_date, g.c.registered_at)


def waiting(connection: Connection, after_id: int, most: int) -> list[Awaited]:
    """Return the next groups by id that are not known to be late."""
    query = select(*_WAITING).where(g.c.id > after_id, g.c.late_since.is_(None)).order_by(g.c.id).limit(most)
    return [Awaited(*row) for row in connection.execute(query)]


def of_groups(connection: Connection, ids: Collection[int]) -> list[Awaited]:
    """Return these groups, as far as they exist."""
    return [Awaited(*row) for row in connection.execute(select(*_WAITING).where(among(g.c.id)), {"ids": list(ids)})]


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
