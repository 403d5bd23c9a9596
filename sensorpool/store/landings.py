"""The record of conditions that ended: one row each, written with the settle of the last waiter.

A condition landed if it landed for one of its waiters. If it did not, and its waiters ended differently, the row has
the ending that is last in order: so that of a cancelled waiter, which tells least of a condition, is the last resort.
"""

from collections.abc import Collection, Iterable
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY

from sensorpool.model.states import Ending
from sensorpool.model.values import Milliseconds, Verdict
from sensorpool.store.dialects import among, count_rows, whole_quotient
from sensorpool.store.schema import landing
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s

_COLUMNS = (
    *("family", "digest", "op_classpath", "backend", "logical_date", "waiting_since"),
    *("ended_at", "ending", "waiters", "pokes"),
)

_OF_GROUP = (
    *("id", "version", "family", "hashcode", "digest", "op_classpath", "backend", "logical_date"),
    *("registered_at", "poke_interval"),
)

_FAMILIES = 25  # whose landings one statement reads

_KNOWN = (
    select(landing.c.family)
    .where(among(landing.c.family), landing.c.ended_at > bindparam("after"))
    .group_by(landing.c.family)
    .having(count_rows >= bindparam("fewest"))
)


class _Waiters(NamedTuple):
    """What became of the waiters of a group, as SQL."""

    landed_at: Any
    last_at: Any
    last_ending: Any
    waiters: Any


class Landing(NamedTuple):
    """An ended condition, as its family's rows have it."""

    family: int
    logical_date: Milliseconds | None
    waiting_since: Milliseconds
    ended_at: Milliseconds


def family_of(columns: Any) -> Any:
    """Return the family of a group, by the columns of its row: its own hashcode if none was named."""
    return func.coalesce(columns.family, columns.hashcode)


def note(connection: Connection, group_ids: Collection[int]) -> None:
    """Add a row for each of these groups, whose waiters have all ended, and which are deleted next."""
    connection.execute(_note(), {"ids": list(group_ids)})


def with_deleted(deletion: Any) -> Any:
    """Return PostgreSQL's statement that deletes groups, adds a row for each, and returns how many were deleted.

    Its parameters: those of the deletion, and what `told` returns. A group of which no waiter has ended before, which
    is nearly every one, has as many verdicts as its version, and its waiters are not read.
    """
    gone = deletion.returning(*(g.c[name] for name in _OF_GROUP)).cte("gone")
    types = {"group_id": BigInteger, "told": Integer, "ending": Text}
    arrays: list[Any] = [bindparam(name, type_=ARRAY(kind)) for name, kind in types.items()]
    just = func.unnest(*arrays).table_valued(*types, name="just").render_derived()
    is_all, now = just.c.told == gone.c.version, bindparam("now", type_=BigInteger)
    # lateral, because the planner cannot make a join of all rows of it
    earlier = _waiters((s.c.group_id == gone.c.id) & ~is_all).lateral("earlier")
    of = _Waiters(
        landed_at=case((is_all, case((just.c.ending == Ending.LANDED, now))), else_=earlier.c.landed_at),
        last_at=case((is_all, now), else_=earlier.c.last_at),
        last_ending=case((is_all, just.c.ending), else_=earlier.c.last_ending),
        waiters=case((is_all, just.c.told), else_=earlier.c.waiters),
    )
    joined = gone.join(just, just.c.group_id == gone.c.id).join(earlier, true())
    added = insert(landing).from_select(_COLUMNS, _rows(gone, of, joined)).cte("added")
    return select(count_rows).select_from(gone).add_cte(added)


def told(group_ids: Collection[int], verdicts: Iterable[Verdict], now: Milliseconds) -> dict[str, Any]:
    """Return the parameters of `with_deleted`: how many waiters of each group end just now, and how.

    :param now: when they end.
    """
    counts, endings = dict.fromkeys(group_ids, 0), dict.fromkeys(group_ids, "")
    for _, group_id, _, ending, _, _ in verdicts:
        if group_id in counts:
            counts[group_id] += 1
            last = endings[group_id]
            if last != Ending.LANDED and (ending is Ending.LANDED or ending > last):
                endings[group_id] = ending
    return {"group_id": list(counts), "told": list(counts.values()), "ending": list(endings.values()), "now": now}


@cache
def _note() -> Any:
    waiters = _waiters(among(s.c.group_id)).add_columns(s.c.group_id).group_by(s.c.group_id).subquery()
    of = _Waiters(**{name: waiters.c[name] for name in _Waiters._fields})
    return insert(landing).from_select(_COLUMNS, _rows(g, of, g.join(waiters, waiters.c.group_id == g.c.id)))


def _waiters(wanted: Any) -> Any:
    """Return what became of the waiters of a group."""
    return select(
        func.min(case((s.c.ending == Ending.LANDED, s.c.settled_at))).label("landed_at"),
        func.max(s.c.settled_at).label("last_at"),
        func.max(s.c.ending).label("last_ending"),
        count_rows.label("waiters"),
    ).where(wanted, s.c.settled_at.is_not(None), s.c.ending.is_not(None))


def _rows(groups: Any, of: _Waiters, joined: Any) -> Any:
    """Return the rows of groups: what their own row says, and what became of their waiters."""
    c = groups.c
    ended_at = func.coalesce(of.landed_at, of.last_at)
    waited = case((ended_at > c.registered_at, ended_at - c.registered_at), else_=0)
    interval = func.nullif(c.poke_interval, 0)  # 0 is an edited row
    return (
        select(
            family_of(c),
            *(c.digest, c.op_classpath, c.backend, c.logical_date, c.registered_at),
            ended_at,
            case((of.landed_at.is_not(None), Ending.LANDED.value), else_=of.last_ending),
            of.waiters,
            func.coalesce(whole_quotient(waited, interval), 0) + 1,
        )
        .select_from(joined)
        .where(of.waiters > 0)
    )


def known_families(connection: Connection, families: Collection[int], after: Milliseconds, fewest: int) -> set[int]:
    """Return which of these families have at least so many rows after a time; the index alone answers."""
    if not families:
        return set()
    wanted = {"ids": list(families), "after": after, "fewest": fewest}
    return set(connection.execute(_KNOWN, wanted).scalars())


def of_families(
    connection: Connection, families: Collection[int], after: Milliseconds, most: int
) -> dict[int, list[Landing]]:
    """Return the newest landings of families.

    :param after: earlier ones are left out.
    :param most: of each family.
    """
    found: dict[int, list[Landing]] = {}
    waiting = iter(families)
    while some := list(islice(waiting, _FAMILIES)):
        for row in connection.execute(_newest(len(some)), {"after": after, "most": most} | _numbered(some)):
            found.setdefault(row.family, []).append(Landing(*row))
    return found


@cache
def _newest(count: int) -> Any:
    """Return a query that reads the newest rows of each of so many families by the index, and no others."""
    columns = [landing.c[name] for name in Landing._fields]
    parts = []
    for place in range(count):
        of_family = landing.c.family == bindparam(_name(place))
        part = select(*columns).where(of_family, landing.c.ended_at > bindparam("after"))
        part = part.where(landing.c.ending == Ending.LANDED).order_by(landing.c.ended_at.desc())
        parts.append(select(part.limit(bindparam("most", type_=Integer)).subquery()))
    return union_all(*parts)


def _numbered(families: Iterable[int]) -> dict[str, int]:
    return {_name(place): family for place, family in enumerate(families)}


def _name(place: int) -> str:
    return f"family_{place}"


def prune(connection: Connection, before: Milliseconds, most: int) -> int:
    """Delete the oldest rows, if they ended before ``before``, ``most`` at a time; return how many were deleted."""
    oldest = connection.execute(select(landing.c.id, landing.c.ended_at).order_by(landing.c.id).limit(most)).all()
    old = [row.id for row in oldest if row.ended_at < before]
    return connection.execute(delete(landing).where(landing.c.id.in_(old))).rowcount if old else 0
