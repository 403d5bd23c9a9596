"""The load of due groups: the query is the scheduler."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, and_, bindparam, case, func, or_, select

from sensorpool.model.values import DueGroup, Milliseconds, ShardRange
from sensorpool.store.database import fetched
from sensorpool.store.dialects import among, whole_quotient
from sensorpool.store.schema import poke_group as g

_GROUP = (
    g.c.id,
    g.c.version,
    g.c.hashcode,
    g.c.members,
    g.c.crashes,
    g.c.poke_interval,
    g.c.phase,
    g.c.registered_at,
    g.c.next_deadline,
)
_INSIDE = (g.c.shardcode >= bindparam("shard_min"), g.c.shardcode < bindparam("shard_max"))
DueRow = tuple[int, int, int]
"""Id, version and hashcode of a group: enough for a process that has the group in its cache."""


def _due_groups() -> Select[Any]:
    def parameter(name: str) -> Any:
        return bindparam(name, type_=BigInteger)

    def period(name: str) -> Any:
        return whole_quotient(parameter(name) + g.c.phase, g.c.poke_interval)

    return select(g.c.id, g.c.version, g.c.hashcode).where(
        *_INSIDE,
        or_(
            period("now") > period("last"),
            g.c.registered_at > parameter("registered_after"),
            and_(g.c.next_deadline > parameter("last"), g.c.next_deadline <= parameter("now")),
        ),
    )


DUE_GROUPS = _due_groups()


def due_groups(
    connection: Connection,
    shard_range: ShardRange,
    *,
    last: Milliseconds,
    now: Milliseconds,
    commit_overlap: Milliseconds,
) -> list[DueRow]:
    """Return the due groups of a range; the rule is `sensorpool.model.due.is_due`."""
    result = connection.execute(
        DUE_GROUPS,
        {
            "shard_min": shard_range.shard_min,
            "shard_max": shard_range.shard_max,
            "last": last,
            "now": now,
            "registered_after": last - commit_overlap,
        },
    )
    return fetched(result)


def _next_due() -> Select[Any]:
    now = bindparam("now", type_=BigInteger)
    left = g.c.poke_interval - (now + g.c.phase) % g.c.poke_interval
    to_come = case((g.c.next_deadline > now, g.c.next_deadline))
    return select(func.min(left), func.min(to_come)).where(*_INSIDE)


_NEXT_DUE = _next_due()


def next_due(connection: Connection, shard_range: ShardRange, now: Milliseconds) -> Milliseconds | None:
    """Return when the next group of a range is due; None: it has no group. See `sensorpool.model.due.next_due_at`."""
    values = {"shard_min": shard_range.shard_min, "shard_max": shard_range.shard_max, "now": now}
    left, deadline = connection.execute(_NEXT_DUE, values).one()
    if left is None:
        return None
    at = now + int(left)
    return at if deadline is None else min(at, int(deadline))


_GROUPS = select(*_GROUP, g.c.op_classpath, g.c.poke_context).where(among(g.c.id))


def groups(connection: Connection, ids: Sequence[int]) -> list[tuple[DueGroup, str, str]]:
    """Return the groups that exist, each with class path and context."""
    if not ids:
        return []
    rows = fetched(connection.execute(_GROUPS, {"ids": ids}))
    return [(DueGroup._make(group), op_classpath, poke_context) for *group, op_classpath, poke_context in rows]


def there(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Return the ids of the groups that exist."""
    return set(connection.execute(select(g.c.id).where(among(g.c.id)), {"ids": ids}).scalars())
