"""The load of due groups: the query is the scheduler."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Connection, and_, bindparam, func, or_, select

from sensorpool.model.values import DueGroup, Milliseconds, ShardRange
from sensorpool.store.database import fetched
from sensorpool.store.dialects import among
from sensorpool.store.schema import poke_group as g

_GROUP = (
    g.c.id,
    g.c.version,
    g.c.hashcode,
    g.c.members,
    g.c.poke_interval,
    g.c.phase,
    g.c.registered_at,
    g.c.next_deadline,
)
_INTERVAL = func.nullif(g.c.poke_interval, 0)  # 0 is an edited row, by which PostgreSQL would not divide
_AT_ONCE = 10_000  # ids in one statement
DueRow = tuple[int, int, int]
"""Id, version and hashcode of a group: enough for a process that has the group in its cache."""


_LAST, _AFTER, _NOW = (bindparam(name, type_=BigInteger) for name in ("last", "registered_after", "now"))
_DUE_GROUPS = select(g.c.id, g.c.version, g.c.hashcode).where(
    g.c.shardcode >= bindparam("shard_min"),
    g.c.shardcode < bindparam("shard_max"),
    or_(  # a period began since the last load, the group is new, or a deadline has come
        (_NOW + g.c.phase) % _INTERVAL < _NOW - _LAST,
        g.c.registered_at > _AFTER,
        and_(g.c.next_deadline <= _NOW, g.c.next_deadline > _LAST),
    ),
)


def due_groups(
    connection: Connection,
    shard_range: ShardRange,
    *,
    last: Milliseconds,
    now: Milliseconds,
    commit_overlap: Milliseconds,
) -> Sequence[DueRow]:
    """Return the due groups of a range; the rule is `sensorpool.model.due.is_due`.

    :param last: the last load of the range.
    """
    values = {
        "shard_min": shard_range.shard_min,
        "shard_max": shard_range.shard_max,
        "now": now,
        "last": last,
        "registered_after": last - commit_overlap,
    }
    return fetched(connection.execute(_DUE_GROUPS, values))


_GROUPS = select(*_GROUP, g.c.op_classpath, g.c.poke_context, g.c.backend).where(among(g.c.id))


def groups(connection: Connection, ids: Sequence[int]) -> list[tuple[DueGroup, str, str, str | None]]:
    """Return the groups that exist, each with class path, context, and the name of its backend, if it has one."""
    if not ids:
        return []
    rows = fetched(connection.execute(_GROUPS, {"ids": ids}))
    return [(DueGroup._make(row[:-3]), *row[-3:]) for row in rows]


def as_now(connection: Connection, ids: Sequence[int]) -> list[DueRow]:
    """Return the groups that exist of these, for a process that has most of them in its cache."""
    found: list[DueRow] = []
    for start in range(0, len(ids), _AT_ONCE):
        found += fetched(connection.execute(_AS_NOW, {"ids": ids[start : start + _AT_ONCE]}))
    return found


_AS_NOW = select(g.c.id, g.c.version, g.c.hashcode).where(among(g.c.id))
