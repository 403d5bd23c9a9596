"""Refusals: conditions whose poke took its process down too often, and DAGs with too many sensing instances."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from sensorpool.model.states import State
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import Milliseconds
from sensorpool.store import settling, troubles
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
    troubles.clear_strikes(connection, digests)
    inside = delete(q) if digests is None else delete(q).where(q.c.digest.in_(digests))
    return connection.execute(inside).rowcount


def prune(connection: Connection, before: Milliseconds) -> int:
    """Let out the conditions that have been in quarantine since before a time; return how many."""
    return connection.execute(delete(q).where(q.c.since < before)).rowcount


def look_at_quotas(connection: Connection, quota: int, now: Milliseconds) -> dict[str, int]:
    """Note which DAGs have more sensing instances than the quota; return the new ones, each with the number."""
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
    return new


def dags_over_quota(connection: Connection) -> dict[str, int]:
    """Return the DAGs that are over their quota, each with its sensing instances when that began."""
    return {row[0]: row[1] for row in connection.execute(select(o.c.dag_id, o.c.sensing).order_by(o.c.dag_id))}
