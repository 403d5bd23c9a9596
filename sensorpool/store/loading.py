"""What is due: the query is the scheduler."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, and_, bindparam, or_, select

from sensorpool.model import DueGroup, Milliseconds, ShardRange
from sensorpool.schema import poke_group as g
from sensorpool.store.database import whole_quotient

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


def _due_groups() -> Select[Any]:
    def parameter(name: str) -> Any:
        return bindparam(name, type_=BigInteger)

    def slot(name: str) -> Any:
        return whole_quotient(parameter(name) + g.c.phase, g.c.poke_interval)

    return select(*_GROUP).where(
        g.c.shardcode >= bindparam("shard_min"),
        g.c.shardcode < bindparam("shard_max"),
        or_(
            slot("now") > slot("last"),
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
) -> list[DueGroup]:
    """Return the groups of a range that are due, and no others: the rule is `sensorpool.due.is_due`."""
    rows = connection.execute(
        DUE_GROUPS,
        {
            "shard_min": shard_range.shard_min,
            "shard_max": shard_range.shard_max,
            "last": last,
            "now": now,
            "registered_after": last - commit_overlap,
        },
    )
    return [DueGroup(*row) for row in rows]


_BY_ID = select(*_GROUP).where(g.c.id.in_(bindparam("ids", expanding=True, literal_execute=True)))


def groups_by_id(connection: Connection, ids: Sequence[int]) -> list[DueGroup]:
    """Return those of the groups that are still there: a job's left-overs."""
    return [DueGroup(*row) for row in connection.execute(_BY_ID, {"ids": ids})] if ids else []


_CONTEXTS = select(g.c.id, g.c.op_classpath, g.c.poke_context).where(
    g.c.id.in_(bindparam("ids", expanding=True, literal_execute=True))
)


def contexts(connection: Connection, ids: Sequence[int]) -> list[tuple[int, str, str]]:
    """Return id, class path and context of groups that this process has not seen yet."""
    return [(row[0], row[1], row[2]) for row in connection.execute(_CONTEXTS, {"ids": ids})] if ids else []
