"""The groups in trouble, and the conditions in quarantine. Nearly always there is none.

A group in trouble (`model.trouble`) has one row, which is written when that changes. A condition whose poke took its
process down too often is in quarantine: it is refused.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, bindparam, delete, func, insert, select, update

from sensorpool.model.trouble import HEALTHY, Trouble
from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.store import settling
from sensorpool.store.dialects import among, count_rows, lower
from sensorpool.store.schema import group_trouble as t
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import poke_quarantine as q

_COLUMNS = (t.c.strikes, t.c.overruns, t.c.failing_since, t.c.unpokeable_since, t.c.cause)
_AT_ONCE = 1_000  # rows in one statement
_IN_RANGE = t.c.shardcode >= bindparam("shard_min", type_=BigInteger), t.c.shardcode < bindparam("shard_max")
_OF_RANGE = select(t.c.group_id, *_COLUMNS).where(*_IN_RANGE)
_GONE = select(t.c.group_id).outerjoin(g, g.c.id == t.c.group_id).where(g.c.id.is_(None)).limit(10_000)


class Changed(NamedTuple):
    """The trouble that a group has from now on, and the shardcode of the group."""

    trouble: Trouble
    shardcode: int


class Unpokeable(NamedTuple):
    """A class that no process could poke, in how many groups, and why."""

    op_classpath: str
    groups: int
    cause: str | None


def of_range(connection: Connection, shard_range: ShardRange) -> dict[int, Trouble]:
    """Return the troubles of a range's groups, by id; some of these groups may be gone."""
    rows = connection.execute(_OF_RANGE, {"shard_min": shard_range.shard_min, "shard_max": shard_range.shard_max})
    return {row[0]: Trouble._make(row[1:]) for row in rows}


def of_group(connection: Connection, group_id: int) -> Trouble:
    """Return the trouble of a group."""
    row = connection.execute(select(*_COLUMNS).where(t.c.group_id == group_id)).one_or_none()
    return HEALTHY if row is None else Trouble._make(row)


def write(connection: Connection, changed: Mapping[int, Changed]) -> None:
    """Write the troubles of groups, by id; a group without trouble loses its row."""
    ids = list(changed)
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        connection.execute(delete(t).where(among(t.c.group_id)), {"ids": some})
        rows = [
            {"group_id": group_id, "shardcode": changed[group_id].shardcode, **changed[group_id].trouble._asdict()}
            for group_id in some
            if changed[group_id].trouble != HEALTHY
        ]
        if rows:
            connection.execute(insert(t), rows)


def move(connection: Connection, shard_range: ShardRange, by: Milliseconds, now: Milliseconds) -> None:
    """Take an outage that has just ended out of the windows of a range's groups.

    A group that no process could poke has its whole window again: other processes may start after this one.
    """
    values = {"failing_since": lower(t.c.failing_since + by, now)}
    in_range = {"shard_min": shard_range.shard_min, "shard_max": shard_range.shard_max}
    connection.execute(update(t).where(*_IN_RANGE, t.c.failing_since.is_not(None)).values(values), in_range)
    moved = update(t).where(*_IN_RANGE, t.c.unpokeable_since.is_not(None)).values(unpokeable_since=now)
    connection.execute(moved, in_range)


def forget_gone(connection: Connection) -> int:
    """Delete the rows of groups that are gone; return how many."""
    gone = list(connection.execute(_GONE).scalars())
    if gone:
        connection.execute(delete(t).where(among(t.c.group_id)), {"ids": gone})
    return len(gone)


def clear_strikes(connection: Connection, digests: Collection[bytes] | None = None) -> None:
    """Delete the rows of groups that were struck; they are poked as others again.

    :param digests: of the groups; None: of all.
    """
    struck = delete(t).where(t.c.strikes > 0)
    if digests is not None:
        struck = struck.where(t.c.group_id.in_(select(g.c.id).where(g.c.digest.in_(digests))))
    connection.execute(struck)


def count_overrunning(connection: Connection) -> int:
    """Count the groups whose last poke overran its time limit."""
    return int(connection.execute(select(count_rows).select_from(t).where(t.c.overruns > 0)).scalar_one())


def unpokeable(connection: Connection, most: int) -> list[Unpokeable]:
    """Return the classes of groups that no process could poke, those of most groups first."""
    of_class: Any = (
        select(g.c.op_classpath, func.count(), func.max(t.c.cause))
        .join(g, g.c.id == t.c.group_id)
        .where(t.c.unpokeable_since.is_not(None))
        .group_by(g.c.op_classpath)
        .order_by(func.count().desc())
        .limit(most)
    )
    return [Unpokeable._make(row) for row in connection.execute(of_class)]


def quarantine(connection: Connection, group_id: int, trouble: Trouble, now: Milliseconds) -> None:
    """Quarantine the condition of a group, unless it is already, or the group is gone."""
    columns = select(g.c.digest, g.c.op_classpath, g.c.poke_context)
    group = connection.execute(columns.where(g.c.id == group_id)).one_or_none()
    if group is not None and not quarantined(connection, [group.digest]):
        values = group._asdict() | {"crashes": trouble.strikes, "reason": trouble.cause or "", "since": now}
        connection.execute(insert(q).values(**values))


def quarantined(connection: Connection, digests: Collection[bytes] | None = None) -> list[Any]:
    """Return the conditions in quarantine, the newest first.

    :param digests: the conditions that are wanted; None: all.
    """
    query = select(q).order_by(q.c.since.desc(), q.c.digest)
    if digests is not None:
        query = query.where(q.c.digest.in_(digests))
    return list(connection.execute(query).mappings())


def count_quarantined(connection: Connection) -> int:
    """Count the conditions in quarantine."""
    return connection.execute(select(count_rows).select_from(q)).scalar_one()


def let_out(connection: Connection, digests: Collection[bytes] | None = None) -> int:
    """Let conditions out of quarantine, and forget their strikes; return how many were let out.

    :param digests: the conditions; None: all.
    """
    settling.begin(connection)
    clear_strikes(connection, digests)
    inside = delete(q) if digests is None else delete(q).where(q.c.digest.in_(digests))
    return connection.execute(inside).rowcount


def prune_quarantine(connection: Connection, before: Milliseconds) -> int:
    """Let out the conditions that have been in quarantine since before a time; return how many."""
    return connection.execute(delete(q).where(q.c.since < before)).rowcount
