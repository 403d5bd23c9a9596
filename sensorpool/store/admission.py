"""Refusals: conditions whose poke took its process down too often, and DAGs with too many sensing instances."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from sensorpool.model.states import State
from sensorpool.model.values import Milliseconds
from sensorpool.store import settling
from sensorpool.store.dialects import count_rows
from sensorpool.store.schema import dag_over_quota as o
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import poke_quarantine as q
from sensorpool.store.schema import sensor_instance as s

NO_DAG = "-"  # the dag_id of a registration without a key, which belongs to no DAG


class Barred(NamedTuple):
    """The parts of a registration that are refused."""

    conditions: dict[bytes, str]  # the digests, with the reason of each
    dags: dict[str, int]  # with the number of sensing instances of each


def barred(connection: Connection, digests: Collection[bytes], dag_ids: Collection[str]) -> Barred:
    """Return which of these conditions and DAGs are refused."""
    conditions = connection.execute(select(q.c.digest, q.c.reason).where(q.c.digest.in_(digests)))
    dags = connection.execute(select(o.c.dag_id, o.c.sensing).where(o.c.dag_id.in_(dag_ids)))
    return Barred({bytes(row[0]): row[1] for row in conditions}, {row[0]: row[1] for row in dags})


def count_crash(
    connection: Connection, group_id: int, seen: int, limit: int, reason: str, now: Milliseconds, strikes: int = 0
) -> int:
    """Count a crash that a group's poke caused; at the limit, quarantine the group's condition.

    :param seen: the count before this crash, so that a repeated call counts it once.
    :param strikes: how often processes had died with the group in hand before the first one that was counted.
    :returns: the number of crashes (0: the group is gone).
    """
    settling.begin(connection)
    before = (g.c.id == group_id, g.c.crashes == seen)
    connection.execute(update(g).where(*before).values(crashes=max(seen, strikes) + 1, version=g.c.version + 1))
    columns = select(g.c.crashes, g.c.digest, g.c.op_classpath, g.c.poke_context)
    group = connection.execute(columns.where(g.c.id == group_id)).one_or_none()
    if group is None:
        return 0
    if group.crashes >= limit and not quarantined(connection, [group.digest]):
        connection.execute(insert(q).values(**group._mapping, reason=reason, since=now))
    return int(group.crashes)


def clear_crashes(connection: Connection, group_ids: Collection[int]) -> None:
    """Set the crashes of groups to 0: a poke of each came back."""
    settling.begin(connection)
    crashed = g.c.id.in_(group_ids) & (g.c.crashes > 0)
    connection.execute(update(g).where(crashed).values(crashes=0, version=g.c.version + 1))


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
    """Let conditions out of quarantine, and set their crashes to 0; return how many were let out.

    :param digests: the conditions; None: all.
    """
    settling.begin(connection)
    crashed, inside = update(g).where(g.c.crashes > 0), delete(q)
    if digests is not None:
        crashed, inside = crashed.where(g.c.digest.in_(digests)), inside.where(q.c.digest.in_(digests))
    connection.execute(crashed.values(crashes=0, version=g.c.version + 1))
    return connection.execute(inside).rowcount


def prune(connection: Connection, before: Milliseconds) -> int:
    """Let out the conditions that have been in quarantine since before a time; return how many."""
    return connection.execute(delete(q).where(q.c.since < before)).rowcount


def look_at_quotas(connection: Connection, quota: int, now: Milliseconds) -> tuple[dict[str, int], int]:
    """Note which DAGs have more sensing instances than the quota.

    :returns: the new ones, each with the number; and how many instances of all DAGs are sensing.
    """
    waiting = int(connection.execute(select(func.coalesce(func.sum(g.c.members), 0))).scalar_one())
    over: dict[str, int] = {}
    if waiting > quota:  # otherwise no DAG can be over it; the count below reads the whole table
        query = select(s.c.dag_id, count_rows).where(s.c.state == State.SENSING, s.c.dag_id != NO_DAG)
        over = {row[0]: row[1] for row in connection.execute(query.group_by(s.c.dag_id).having(count_rows > quota))}
    known = set(connection.execute(select(o.c.dag_id)).scalars())
    if ended := known - over.keys():
        connection.execute(delete(o).where(o.c.dag_id.in_(ended)))
    new = {dag_id: sensing for dag_id, sensing in over.items() if dag_id not in known}
    if new:
        connection.execute(insert(o), [{"dag_id": dag_id, "sensing": n, "since": now} for dag_id, n in new.items()])
    return new, waiting


def dags_over_quota(connection: Connection) -> dict[str, int]:
    """Return the DAGs that are over their quota, each with its sensing instances when that began."""
    return {row[0]: row[1] for row in connection.execute(select(o.c.dag_id, o.c.sensing).order_by(o.c.dag_id))}
