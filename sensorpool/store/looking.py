"""Questions that people ask; nothing here is on the path of the data."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from sensorpool.model import Milliseconds, ShardRange
from sensorpool.schema import outbox
from sensorpool.schema import poke_group as g
from sensorpool.schema import sensor_instance as s
from sensorpool.states import State
from sensorpool.store.functions import among, count_rows


def states(connection: Connection, instance_ids: Collection[int]) -> dict[int, State]:
    """Return the state of each of these instances that exists."""
    query = select(s.c.id, s.c.state).where(among(s.c.id))
    return {row[0]: State(row[1]) for row in connection.execute(query, {"ids": list(instance_ids)})}


def waiters(connection: Connection, instance_ids: Collection[int]) -> list[Any]:
    """Return state, group and number of members of these instances; members is None once the group is gone."""
    query = (
        select(s.c.id, s.c.state, s.c.group_id, s.c.shardcode, s.c.start_date, s.c.timeout_at, g.c.members)
        .select_from(s.outerjoin(g, g.c.id == s.c.group_id))
        .where(among(s.c.id))
    )
    return list(connection.execute(query, {"ids": list(instance_ids)}))


def external_waiters(
    connection: Connection, after_group: int, size: int, before: Milliseconds
) -> tuple[Any, int | None]:
    """Look at those who sense in the next groups by id, for somebody elsewhere, since before a time.

    :returns: rows of id and external_id; and the last group looked at, None at the end.
    """
    groups = connection.execute(select(g.c.id).where(g.c.id > after_group).order_by(g.c.id).limit(size)).scalars().all()
    query = select(s.c.id, s.c.external_id).where(
        among(s.c.group_id), s.c.state == State.SENSING, s.c.external_id.is_not(None), s.c.start_date < before
    )
    rows = connection.execute(query, {"ids": list(groups)}).all() if groups else []
    return rows, groups[-1] if len(groups) == size else None


def count_by_state(connection: Connection) -> dict[str, int]:
    """Count the instances in each state; those that were pruned are gone."""
    return {row[0]: row[1] for row in connection.execute(select(s.c.state, count_rows).group_by(s.c.state))}


def count_waiting(connection: Connection) -> tuple[int, int]:
    """Return how many groups there are, and how many instances wait in them."""
    row = connection.execute(select(count_rows, func.coalesce(func.sum(g.c.members), 0)).select_from(g)).one()
    return int(row[0]), int(row[1])


def count_groups(connection: Connection, ranges: Sequence[ShardRange]) -> list[int]:
    """Count the groups of each range."""
    by_shardcode = connection.execute(select(g.c.shardcode, count_rows).group_by(g.c.shardcode)).all()
    return [sum(n for shardcode, n in by_shardcode if r.shard_min <= shardcode < r.shard_max) for r in ranges]


def instance(connection: Connection, instance_id: int) -> Any | None:
    """Return the whole row of an instance."""
    return connection.execute(select(s).where(s.c.id == instance_id)).mappings().one_or_none()


def group(connection: Connection, group_id: int) -> Any | None:
    """Return the whole row of a group, if anybody still waits for it."""
    return connection.execute(select(g).where(g.c.id == group_id)).mappings().one_or_none()


def others_of_group(connection: Connection, group_id: int, most: int) -> list[Any]:
    """Return id and key of those who sense in a group, the first to come first."""
    query = (
        select(s.c.id, s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index, s.c.try_number)
        .where(s.c.group_id == group_id, s.c.state == State.SENSING)
        .order_by(s.c.id)
        .limit(most)
    )
    return list(connection.execute(query).mappings())


def instances(connection: Connection, *, state: State | None, dag_id: str | None, most: int) -> list[Any]:
    """List instances, the newest first."""
    query = select(
        s.c.id,
        s.c.state,
        s.c.dag_id,
        s.c.task_id,
        s.c.run_id,
        s.c.map_index,
        s.c.try_number,
        s.c.op_classpath,
        s.c.start_date,
        s.c.settled_at,
        s.c.reason,
    )
    if state is not None:
        query = query.where(s.c.state == state)
    if dag_id is not None:
        query = query.where(s.c.dag_id == dag_id)
    return list(connection.execute(query.order_by(s.c.id.desc()).limit(most)).mappings())


def oldest_unpublished(connection: Connection) -> Milliseconds | None:
    """Return since when the oldest outbox row has been waiting, if there is one."""
    return connection.execute(select(func.min(outbox.c.created_at))).scalar()
