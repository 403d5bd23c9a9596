"""The record of conditions that ended: one row each, written with the settle of the last waiter.

A condition landed if it landed for one of its waiters. If it did not, and its waiters ended differently, the row has
the ending that is last in order: so that of a cancelled waiter, which tells least of a condition, is the last resort.
"""

from collections.abc import Collection
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    case,
    delete,
    func,
    insert,
    select,
    true,
)

from sensorpool.model.states import Ending
from sensorpool.model.values import Milliseconds
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.schema import landing
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s

_COLUMNS = (
    *("family", "digest", "op_classpath", "backend", "logical_date", "waiting_since"),
    *("ended_at", "ending", "waiters", "pokes"),
)

_OF_GROUP = (
    *("id", "family", "hashcode", "digest", "op_classpath", "backend", "logical_date"),
    *("registered_at", "poke_interval"),
)


def family_of(columns: Any) -> Any:
    """Return the family of a group, by the columns of its row: its own hashcode if none was named."""
    return func.coalesce(columns.family, columns.hashcode)


def note(connection: Connection, group_ids: Collection[int]) -> None:
    """Add a row for each of these groups, whose waiters have all ended, and which are deleted next."""
    connection.execute(_note(), {"ids": list(group_ids)})


def with_deleted(deletion: Any) -> Any:
    """Return PostgreSQL's statement that deletes groups, adds a row for each, and returns how many were deleted."""
    gone = deletion.returning(*(g.c[name] for name in _OF_GROUP)).cte("gone")
    # lateral, because the planner cannot make a join of all rows of it
    of = _waiters(s.c.group_id == gone.c.id).lateral("of")
    rows = _rows(gone, of.c).select_from(gone.join(of, true()))
    added = insert(landing).from_select(_COLUMNS, rows).cte("added")
    return select(count_rows).select_from(gone).add_cte(added)


@cache
def _note() -> Any:
    waiters = _waiters(among(s.c.group_id)).add_columns(s.c.group_id).group_by(s.c.group_id).subquery()
    joined = g.join(waiters, waiters.c.group_id == g.c.id)
    return insert(landing).from_select(_COLUMNS, _rows(g, waiters.c).select_from(joined))


def _waiters(wanted: Any) -> Any:
    """Return what became of the waiters of a group."""
    return select(
        func.min(case((s.c.ending == Ending.LANDED, s.c.settled_at))).label("landed_at"),
        func.max(s.c.settled_at).label("last_at"),
        func.max(s.c.ending).label("last_ending"),
        count_rows.label("waiters"),
    ).where(wanted, s.c.settled_at.is_not(None), s.c.ending.is_not(None))


def _rows(groups: Any, of: Any) -> Any:
    """Return the rows of groups: what their own row says, and what became of their waiters (`_waiters`)."""
    c = groups.c
    ended_at = func.coalesce(of.landed_at, of.last_at)
    waited = case((ended_at > c.registered_at, ended_at - c.registered_at), else_=0)
    interval = func.nullif(c.poke_interval, 0, type_=BigInteger)  # 0 is an edited row
    return select(
        family_of(c),
        *(c.digest, c.op_classpath, c.backend, c.logical_date, c.registered_at),
        ended_at,
        case((of.landed_at.is_not(None), Ending.LANDED.value), else_=of.last_ending),
        of.waiters,
        func.coalesce(waited // interval, 0) + 1,
    ).where(of.waiters > 0)


def prune(connection: Connection, before: Milliseconds, most: int) -> int:
    """Delete the oldest rows, if they ended before ``before``, ``most`` at a time; return how many were deleted."""
    oldest = connection.execute(select(landing.c.id, landing.c.ended_at).order_by(landing.c.id).limit(most)).all()
    old = [row.id for row in oldest if row.ended_at < before]
    return connection.execute(delete(landing).where(landing.c.id.in_(old))).rowcount if old else 0
