"""The conditions that are waited for: lists for people, who waits for them, and those that a wake-up concerns."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select

from sensorpool.model.states import State
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.schema import landing
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s

_COLUMNS = (
    *("id", "digest", "hashcode", "shardcode", "members", "op_classpath", "poke_context", "poke_interval", "phase"),
    *("registered_at", "next_deadline", "family", "backend", "logical_date", "late_since"),
)
_AT_ONCE = 1_000  # values of a wake-up in one statement
_ESCAPE = "\\"
_KEY = (s.c.id, s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index, s.c.try_number)


class Order(StrEnum):
    """What a list of conditions is sorted by; the first in it is what hurts most."""

    WAITERS = "waiters"
    AGE = "age"
    LATENESS = "lateness"
    DEADLINE = "deadline"


_SORTED = {
    Order.WAITERS: (g.c.members.desc(), g.c.id),
    Order.AGE: (g.c.registered_at, g.c.id),
    Order.LATENESS: (g.c.late_since.is_(None), g.c.late_since, g.c.registered_at, g.c.id),
    Order.DEADLINE: (g.c.next_deadline.is_(None), g.c.next_deadline, g.c.id),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which conditions are wanted; None: any.

    :param dag_ids: only those that a task of one of these DAGs waits for; few of them, in a statement.
    :param late: only those that are later than usual.
    """

    op_classpath: str | None = None
    backend: str | None = None
    dag_ids: Collection[str] | None = None
    late: bool = False

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return what holds for each condition that is wanted."""
        found = [g.c[name] == value for name in ("op_classpath", "backend") if (value := getattr(self, name))]
        if self.late:
            found.append(g.c.late_since.is_not(None))
        if self.dag_ids is not None:
            waiters = select(s.c.group_id).where(s.c.dag_id.in_(list(self.dag_ids)), s.c.state == State.SENSING)
            found.append(g.c.id.in_(waiters))
        return found


class Load(NamedTuple):
    """What a pool does, and what its waiters would do without it: pokes a second."""

    pokes: float
    without: float


def conditions(connection: Connection, wanted: Wanted, order: Order, first: int, most: int) -> list[Any]:
    """Return the rows of the next groups in an order, after the ``first`` ones."""
    columns = [g.c[name] for name in _COLUMNS]
    query = select(*columns).where(*wanted.conditions()).order_by(*_SORTED[order]).offset(first).limit(most)
    return list(connection.execute(query).mappings())


def count(connection: Connection, wanted: Wanted) -> int:
    """Return how many groups are wanted, on all pages."""
    return int(connection.execute(select(count_rows).select_from(g).where(*wanted.conditions())).scalar_one())


def ids(connection: Connection, wanted: Wanted, order: Order) -> list[int]:
    """Return the ids of all wanted groups, in an order."""
    return list(connection.execute(select(g.c.id).where(*wanted.conditions()).order_by(*_SORTED[order])).scalars())


def of_ids(connection: Connection, group_ids: Sequence[int]) -> list[Any]:
    """Return the rows of groups, in the order of the ids."""
    rows = connection.execute(select(*(g.c[name] for name in _COLUMNS)).where(among(g.c.id)), {"ids": list(group_ids)})
    by_id = {row["id"]: row for row in rows.mappings()}
    return [by_id[group_id] for group_id in group_ids if group_id in by_id]


def first_waiters(
    connection: Connection, group_ids: Collection[int], dag_ids: Collection[str] | None
) -> dict[int, Any]:
    """Return the oldest sensing instance of each of these groups.

    :param dag_ids: only instances of these DAGs; None: of all.
    """
    if not group_ids:
        return {}
    waits = [among(s.c.group_id), s.c.state == State.SENSING]
    if dag_ids is not None:
        waits.append(s.c.dag_id.in_(list(dag_ids)))
    oldest = select(func.min(s.c.id)).where(*waits).group_by(s.c.group_id)
    columns = (s.c.group_id, *_KEY, s.c.start_date)
    rows = connection.execute(select(*columns).where(s.c.id.in_(oldest)), {"ids": list(group_ids)})
    return {row["group_id"]: row for row in rows.mappings()}


def waiters(
    connection: Connection, group_id: int, dag_ids: Collection[str] | None, after_id: int, most: int
) -> list[Any]:
    """Return the next sensing instances of a group, the oldest first.

    :param dag_ids: only instances of these DAGs; None: of all.
    """
    waits = [s.c.group_id == group_id, s.c.state == State.SENSING, s.c.id > after_id]
    if dag_ids is not None:
        waits.append(s.c.dag_id.in_(list(dag_ids)))
    query = select(*_KEY, s.c.start_date, s.c.timeout_at).where(*waits).order_by(s.c.id).limit(most)
    return list(connection.execute(query).mappings())


def dags_of(connection: Connection, group_id: int) -> set[str]:
    """Return the DAGs of the sensing instances of a group."""
    waits = (s.c.group_id == group_id, s.c.state == State.SENSING)
    return set(connection.execute(select(s.c.dag_id).where(*waits).distinct()).scalars())


def waiting_dags(connection: Connection) -> set[str]:
    """Return the DAGs of all sensing instances."""
    return set(connection.execute(select(s.c.dag_id).where(s.c.state == State.SENSING).distinct()).scalars())


def classes_of(connection: Connection, group_ids: Collection[int]) -> dict[str, int]:
    """Return how many of these groups there are of each class."""
    query = select(g.c.op_classpath, count_rows).where(among(g.c.id)).group_by(g.c.op_classpath)
    return {row[0]: row[1] for row in connection.execute(query, {"ids": list(group_ids)})} if group_ids else {}


def load(connection: Connection) -> Load:
    """Return how many pokes a second the intervals ask for, of the groups and of their members each by itself."""
    each = 1000.0 / func.nullif(g.c.poke_interval, 0)  # 0 is an edited row
    row = connection.execute(select(func.sum(each), func.sum(each * g.c.members))).one()
    return Load(float(row[0] or 0.0), float(row[1] or 0.0))


def landings(connection: Connection, family: int, most: int) -> list[Any]:
    """Return the newest landings of a family."""
    query = select(landing).where(landing.c.family == family).order_by(landing.c.ended_at.desc()).limit(most)
    return list(connection.execute(query).mappings())


class Woken(NamedTuple):
    """A group to be woken."""

    id: int
    shardcode: int


def of_digests(connection: Connection, digests: Collection[bytes], most: int) -> list[Woken]:
    """Return the groups with these identities."""
    return _some(connection, g.c.digest, list(digests), most)


def of_locations(connection: Connection, locations: Collection[str], most: int) -> list[Woken]:
    """Return the groups that wait for something at one of these locations."""
    return _some(connection, g.c.location, list(locations), most)


def below(connection: Connection, prefix: str, most: int) -> list[Woken]:
    """Return the groups whose location begins with a prefix."""
    pattern = "".join(f"{_ESCAPE}{letter}" if letter in f"%_{_ESCAPE}" else letter for letter in prefix)
    return _rows(
        connection, select(g.c.id, g.c.shardcode).where(g.c.location.like(f"{pattern}%", escape=_ESCAPE)), most
    )


def _some(connection: Connection, column: Any, values: list[Any], most: int) -> list[Woken]:
    found: list[Woken] = []
    for start in range(0, len(values), _AT_ONCE):
        wanted = column.in_(values[start : start + _AT_ONCE])
        found += _rows(connection, select(g.c.id, g.c.shardcode).where(wanted), most - len(found))
    return found


def _rows(connection: Connection, statement: Select[Any], most: int) -> list[Woken]:
    return [Woken(row[0], row[1]) for row in connection.execute(statement.limit(most))] if most > 0 else []
