"""Queries for people; none of them is on the path of the data."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, or_, select

from sensorpool.model.states import Ending, State
from sensorpool.model.values import Key, Milliseconds, ShardRange
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.schema import outbox
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s

_LATE = select(g.c.id).where(g.c.late_since.is_not(None))
_ESCAPE = "!"
_CONTEXT = "poke_context"
_SEARCHED = ("dag_id", "task_id", "run_id", "op_classpath", _CONTEXT, "reason")
_COLUMNS = (
    *("id", "state", "ending", "dag_id", "task_id", "run_id", "map_index", "try_number"),
    *("op_classpath", "start_date", "timeout_at", "settled_at", "reason"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which instances are wanted; None: any.

    :param text: a part of the task's names, the class path, the context or the reason, in small or capital letters.
    :param past: only those that still wait, with a deadline before this time.
    :param late: only those that wait for a condition that is later than usual.
    :param before: only those with a lower id: the next page.
    :param contexts: whether contexts are read and searched.
    """

    text: str | None = None
    state: State | None = None
    ending: Ending | None = None
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int | None = None
    past: Milliseconds | None = None
    late: bool = False
    before: int | None = None
    contexts: bool = True

    def texts(self) -> list[str]:
        """Return the texts that are looked for."""
        return [value for field in fields(self) if isinstance(value := getattr(self, field.name), str)]

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return what holds for each instance that is wanted, on this page or another one."""
        equal = ("state", "ending", "dag_id", "task_id", "run_id", "map_index")
        found = [s.c[name] == value for name in equal if (value := getattr(self, name)) is not None]
        if self.text is not None:
            names = [name for name in _SEARCHED if self.contexts or name != _CONTEXT]
            found.append(or_(*(s.c[name].icontains(self.text, autoescape=True, escape=_ESCAPE) for name in names)))
        if self.past is not None:
            found += [s.c.state == State.SENSING, s.c.timeout_at < self.past]
        if self.late:
            found += [s.c.state == State.SENSING, s.c.group_id.in_(_LATE)]
        return found


def instances(connection: Connection, selection: Selection, most: int) -> list[Any]:
    """List instances, the newest first."""
    names = [*_COLUMNS, *([_CONTEXT] if selection.contexts else [])]
    query = select(*(s.c[name] for name in names)).where(*selection.conditions())
    if selection.before is not None:
        query = query.where(s.c.id < selection.before)
    return list(connection.execute(query.order_by(s.c.id.desc()).limit(most)).mappings())


def count_instances(connection: Connection, selection: Selection) -> int:
    """Return how many instances are wanted, on all pages."""
    return int(connection.execute(select(count_rows).select_from(s).where(*selection.conditions())).scalar_one())


def states(connection: Connection, instance_ids: Collection[int]) -> dict[int, State]:
    """Return the state of each of these instances that exists."""
    query = select(s.c.id, s.c.state).where(among(s.c.id))
    return {row[0]: State(row[1]) for row in connection.execute(query, {"ids": list(instance_ids)})}


def has_external(connection: Connection, before: Milliseconds) -> bool:
    """Whether an instance waits that another system waits for, as a task of Airflow does, registered before a time."""
    waits = select(s.c.id).where(s.c.state == State.SENSING, s.c.external_id.is_not(None), s.c.start_date < before)
    return connection.execute(waits.limit(1)).first() is not None


def keys(connection: Connection, instance_ids: Collection[int]) -> dict[int, Key]:
    """Return the key and try of each of these instances that exists."""
    query = select(s.c.id, *(s.c[name] for name in Key._fields)).where(among(s.c.id))
    return {row[0]: Key(*row[1:]) for row in connection.execute(query, {"ids": list(instance_ids)})}


def waiters(connection: Connection, instance_ids: Collection[int]) -> list[Any]:
    """Return whose these instances are, their state, and how the settled ones ended; members is None without a group.

    The rows say whether there is an XCom value, but not the value: there may be thousands of 256 KB each.
    """
    has_value = s.c.xcom_value.is_not(None).label("has_value")
    waits = (s.c.group_id, s.c.shardcode, s.c.start_date, s.c.timeout_at, g.c.members)
    query = (
        select(s.c.id, s.c.external_id, s.c.state, *waits, s.c.ending, s.c.reason, has_value)
        .select_from(s.outerjoin(g, g.c.id == s.c.group_id))
        .where(among(s.c.id))
    )
    return list(connection.execute(query, {"ids": list(instance_ids)}))


def of_key(connection: Connection, key: Key) -> Any | None:
    """Return id, state, external id, start and condition of the instance of a key and try; None if there is none."""
    query = select(s.c.id, s.c.state, s.c.external_id, s.c.start_date, s.c.op_classpath, s.c.poke_context)
    found = connection.execute(query.where(*(s.c[name] == value for name, value in key._asdict().items())))
    return found.one_or_none()


def external_waiters(
    connection: Connection, after_group: int, size: int, before: Milliseconds
) -> tuple[Any, int | None]:
    """Return the sensing instances with an external id in the next groups by id.

    :param after_group: the last group of the page before.
    :param size: groups in a page.
    :param before: only instances that started before this time.
    :returns: rows of id, external_id, start_date, key and try; and the last group of the page, None at the end.
    """
    groups = connection.execute(select(g.c.id).where(g.c.id > after_group).order_by(g.c.id).limit(size)).scalars().all()
    key = (s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index, s.c.try_number)
    query = select(s.c.id, s.c.external_id, s.c.start_date, *key).where(
        among(s.c.group_id), s.c.state == State.SENSING, s.c.external_id.is_not(None), s.c.start_date < before
    )
    rows = connection.execute(query, {"ids": list(groups)}).all() if groups else []
    return rows, groups[-1] if len(groups) == size else None


def count_by_state(connection: Connection) -> dict[str, int]:
    """Count the instances in each state, without pruned ones; cancelled ones that were handed back count as that."""
    state = case((s.c.ending == Ending.HANDED_BACK, s.c.ending), else_=s.c.state).label("shown")
    return {row[0]: row[1] for row in connection.execute(select(state, count_rows).group_by("shown"))}


def count_waiting(connection: Connection) -> tuple[int, int]:
    """Return the number of groups, and of the instances that wait in them."""
    row = connection.execute(select(count_rows, func.coalesce(func.sum(g.c.members), 0)).select_from(g)).one()
    return int(row[0]), int(row[1])


def count_groups(connection: Connection, ranges: Sequence[ShardRange]) -> list[int]:
    """Count the groups of each range."""
    by_shardcode = connection.execute(select(g.c.shardcode, count_rows).group_by(g.c.shardcode)).all()
    return [sum(n for shardcode, n in by_shardcode if r.shard_min <= shardcode < r.shard_max) for r in ranges]


def instance(connection: Connection, instance_id: int) -> Any | None:
    """Return the whole row of an instance, or None."""
    return connection.execute(select(s).where(s.c.id == instance_id)).mappings().one_or_none()


def group(connection: Connection, group_id: int) -> Any | None:
    """Return the whole row of a group, or None if no instance waits for it any more."""
    return connection.execute(select(g).where(g.c.id == group_id)).mappings().one_or_none()


def intervals(connection: Connection, ids: Sequence[int]) -> dict[int, Milliseconds]:
    """Return the interval of each of these groups that exists."""
    rows = connection.execute(select(g.c.id, g.c.poke_interval).where(among(g.c.id)), {"ids": ids})
    return {row[0]: row[1] for row in rows}


def shortest_interval(connection: Connection, shard_range: ShardRange) -> Milliseconds | None:
    """Return the shortest interval of a range's groups; None if the range has no group."""
    inside = g.c.shardcode >= shard_range.shard_min, g.c.shardcode < shard_range.shard_max
    return connection.execute(select(func.min(g.c.poke_interval)).where(*inside)).scalar()


def past_deadline(connection: Connection, now: Milliseconds, intervals: int, more: Milliseconds) -> tuple[int, Any]:
    """Return how many groups are past a deadline, and the row of the earliest.

    :param intervals: how many of its intervals a group must be past its deadline.
    :param more: milliseconds that are added to them.
    """
    late = g.c.next_deadline + intervals * g.c.poke_interval < now - more
    count, first = connection.execute(select(count_rows, func.min(g.c.next_deadline)).where(late)).one()
    query = select(g.c.id, g.c.op_classpath, g.c.next_deadline).where(late, g.c.next_deadline == first)
    return int(count), connection.execute(query.order_by(g.c.id).limit(1)).one_or_none() if count else None


def others_of_group(connection: Connection, group_id: int, most: int) -> list[Any]:
    """Return id and key of the sensing instances of a group, the oldest first."""
    query = (
        select(s.c.id, s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index, s.c.try_number)
        .where(s.c.group_id == group_id, s.c.state == State.SENSING)
        .order_by(s.c.id)
        .limit(most)
    )
    return list(connection.execute(query).mappings())


def earliest_timeout(connection: Connection, group_id: int, dag_ids: Collection[str] | None) -> Milliseconds | None:
    """Return the earliest deadline of those who wait for a condition; None where none waits.

    :param dag_ids: only of tasks of these DAGs; None: of all.
    """
    query = select(func.min(s.c.timeout_at)).where(s.c.group_id == group_id, s.c.state == State.SENSING)
    if dag_ids is not None:
        query = query.where(s.c.dag_id.in_(list(dag_ids)))
    return connection.execute(query).scalar()


def oldest_unpublished(connection: Connection) -> Milliseconds | None:
    """Return since when the oldest outbox row has been waiting; None if there is none."""
    return connection.execute(select(func.min(outbox.c.created_at))).scalar()
