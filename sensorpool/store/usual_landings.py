"""What is usual for families: percentiles of their landings, asked of the database and kept for an hour.

The newest 120 landings of a family count, of those at most 400 days old. Landings of runs that were caught up do not:
they were waited for much later after the logical date than others of the family, so they say nothing about when data
usually lands. Ten landings are needed, also for a weekday to have its own percentiles.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, literal, literal_column, select, union_all

from sensorpool.model.states import Ending
from sensorpool.model.usual_landing import ALL_DAYS, DAY, Series, Usual
from sensorpool.model.values import Milliseconds
from sensorpool.store.database import Database
from sensorpool.store.dialects import count_rows, whole_quotient
from sensorpool.store.schema import landing

FEWEST = 10  # landings, without which nothing is usual
_MOST = 120  # landings of a family, the newest ones
_LOOK_BACK = 400 * DAY
_CAUGHT_UP = DAY // 4
_AT_ONCE = 25  # families in a statement
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
        for start in range(0, len(unread), _AT_ONCE):
            some = unread[start : start + _AT_ONCE]
            found = self._database.read(percentiles, some, now)
            kept.update((family, (here, found.get(family, {}))) for family in some)
        return {family: kept[family][1] for family in families if family in kept}


def percentiles(connection: Connection, families: Sequence[int], now: Milliseconds) -> Mapping[int, Series]:
    """Return what is usual for those of a few families that have enough landings."""
    values = {"after": now - _LOOK_BACK} | {f"family_{place}": family for place, family in enumerate(families)}
    found: dict[int, dict[tuple[bool, int], Usual]] = {}
    for family, is_dated, weekday, *usual in connection.execute(_percentiles(len(families)), values):
        found.setdefault(family, {})[bool(is_dated), weekday] = Usual(*map(int, usual))
    return found


@cache
def _percentiles(families: int) -> Any:
    newest = union_all(*(_newest(place) for place in range(families))).subquery()
    kind = (newest.c.family, newest.c.is_dated)
    place = func.cume_dist().over(partition_by=kind, order_by=newest.c.unwaited)
    placed = select(newest, place.label("place")).subquery()
    kind = (placed.c.family, placed.c.is_dated)
    # the first tenth may be runs by hand, which are waited for at once
    usually = func.min(case((placed.c.place > 0.1, placed.c.unwaited))).over(partition_by=kind)
    compared = select(placed, usually.label("usually")).subquery()
    timely = select(compared).where(compared.c.unwaited <= 2 * compared.c.usually + _CAUGHT_UP).cte("timely")
    return union_all(_ranked(timely, timely.c.weekday), _ranked(timely, literal_column(str(ALL_DAYS))))


def _newest(place: int) -> Any:
    """Return a query that reads the newest landings of a family by the index, and no others."""
    c = landing.c
    began = func.coalesce(c.logical_date, c.waiting_since)
    rows = (
        select(
            c.family,
            case((c.logical_date.is_(None), 0), else_=1).label("is_dated"),
            (whole_quotient(began, literal(DAY)) % 7).label("weekday"),
            (c.ended_at - began).label("took"),
            case((c.waiting_since > began, c.waiting_since - began), else_=0).label("unwaited"),
        )
        .where(c.family == bindparam(f"family_{place}"), c.ended_at > bindparam("after"))
        .where(c.ending == Ending.LANDED)
        .order_by(c.ended_at.desc())
        .limit(_MOST)
    )
    return select(rows.subquery())


def _ranked(timely: Any, weekday: Any) -> Any:
    """Return a query for the percentiles of each weekday, or of all days."""
    c = timely.c
    kind = (c.family, c.is_dated, weekday.label("weekday"))
    place = func.cume_dist().over(partition_by=(c.family, c.is_dated, weekday), order_by=c.took)
    c = select(*kind, c.took, c.unwaited, place.label("place")).subquery().c
    kind = (c.family, c.is_dated, c.weekday)
    median, latest = (func.min(case((c.place >= share, c.took))) for share in (0.5, 0.9))
    waited = case((c.took > c.unwaited, c.took - c.unwaited), else_=0)
    usual = (count_rows, median, latest, func.min(c.took), func.min(waited))
    return select(*kind, *usual).group_by(*kind).having(count_rows >= FEWEST)
