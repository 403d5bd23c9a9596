"""The load of due groups: the query is the scheduler."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Executable,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
)

from sensorpool.model.states import State
from sensorpool.model.values import DueGroup, Milliseconds, ShardRange
from sensorpool.store import due_postgres
from sensorpool.store.database import fetched
from sensorpool.store.dialects import among, whole_quotient
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s
from sensorpool.store.shards import within

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
_INTERVAL = func.nullif(g.c.poke_interval, 0)  # 0 is an edited row, by which PostgreSQL would not divide
_AT_ONCE = 10_000  # ids in one statement
DueRow = tuple[int, int, int]
"""Id, version and hashcode of a group: enough for a process that has the group in its cache."""


def _parameter(name: str) -> Any:
    return bindparam(name, type_=BigInteger)


def _inside(place: int) -> Any:
    """Return what holds for the groups of the range with this place in a question."""
    return within(bindparam(f"shard_min_{place}"), bindparam(f"shard_max_{place}"))


def _due_groups(place: int) -> Select[Any]:
    last, after, now = _parameter(f"last_{place}"), _parameter(f"registered_after_{place}"), _parameter("now")

    def period(at: Any) -> Any:
        return whole_quotient(at + g.c.phase, _INTERVAL)

    return select(g.c.id, g.c.version, g.c.hashcode, literal_column(str(place))).where(
        _inside(place),
        or_(
            period(now) > period(last),
            g.c.registered_at > after,
            and_(g.c.next_deadline > last, g.c.next_deadline <= now),
        ),
    )


def _next_due(place: int) -> Select[Any]:
    now = _parameter("now")
    left = g.c.poke_interval - (now + g.c.phase) % _INTERVAL
    to_come = case((g.c.next_deadline > now, g.c.next_deadline))
    return select(func.min(left), func.min(to_come), literal_column(str(place))).where(_inside(place))


@lru_cache(maxsize=64)
def due_groups_statement(ranges: int) -> Executable:
    """Return the statement of `due_groups` for so many ranges."""
    return _of_each(_due_groups, ranges)


@lru_cache(maxsize=64)
def _next_due_statement(ranges: int) -> Executable:
    return _of_each(_next_due, ranges)


def _of_each(of_one: Callable[[int], Select[Any]], ranges: int) -> Executable:
    first, *others = (of_one(place) for place in range(ranges))
    if others:
        return first.union_all(*others)
    return first.with_only_columns(*list(first.selected_columns)[:-1])  # there may be very many rows


def due_groups(
    connection: Connection,
    lasts: Mapping[ShardRange, Milliseconds],
    *,
    now: Milliseconds,
    commit_overlap: Milliseconds,
) -> list[list[DueRow]]:
    """Return the due groups of each range; the rule is `sensorpool.model.due.is_due`.

    :param lasts: the ranges, each with its last load.
    """
    if due_postgres.answers(connection, lasts, now):
        rows = due_postgres.due_groups(connection, lasts, now=now, commit_overlap=commit_overlap)
    else:
        values = _bounds(lasts) | {"now": now}
        for place, last in enumerate(lasts.values()):
            values[f"last_{place}"], values[f"registered_after_{place}"] = last, last - commit_overlap
        rows = fetched(connection.execute(due_groups_statement(len(lasts)), values))
    if len(lasts) == 1:
        return [rows]
    found: list[list[DueRow]] = [[] for _ in lasts]
    for row in rows:
        found[row[3]].append(row[:3])
    return found


def next_due(connection: Connection, ranges: Sequence[ShardRange], now: Milliseconds) -> list[Milliseconds | None]:
    """Return when the next group of each range is due; None: it has none. See `sensorpool.model.due.next_due_at`."""
    if due_postgres.answers(connection, dict.fromkeys(ranges, now), now):
        rows = due_postgres.next_due(connection, ranges, now)
    else:
        rows = fetched(connection.execute(_next_due_statement(len(ranges)), _bounds(ranges) | {"now": now}))
    found: list[Milliseconds | None] = [None] * len(ranges)
    for left, deadline, *place in rows:
        times = [at for at in (None if left is None else now + int(left), deadline) if at is not None]
        if times:
            found[place[0] if place else 0] = int(min(times))
    return found


def _bounds(ranges: Iterable[ShardRange]) -> dict[str, int]:
    values = dict[str, int]()
    for place, each in enumerate(ranges):
        values[f"shard_min_{place}"], values[f"shard_max_{place}"] = each.shard_min, each.shard_max
    return values


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


def there(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Return the ids of the groups that exist."""
    return set(connection.execute(select(g.c.id).where(among(g.c.id)), {"ids": ids}).scalars())


_AS_NOW = select(g.c.id, g.c.version, g.c.hashcode).where(among(g.c.id))

_DAGS = (
    select(s.c.group_id, func.min(s.c.dag_id))
    .where(among(s.c.group_id), s.c.state == State.SENSING)
    .group_by(s.c.group_id)
)


def dags_of(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return a DAG of each of these groups that waits for it; a group without waiters is left out."""
    found: dict[int, str] = {}
    for start in range(0, len(ids), _AT_ONCE):
        rows = connection.execute(_DAGS, {"ids": list(ids[start : start + _AT_ONCE])})
        found.update((int(group_id), str(dag_id)) for group_id, dag_id in rows)
    return found
