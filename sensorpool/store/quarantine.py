"""The quarantine: conditions whose poke took its process down too often. They are refused."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from sensorpool.model.trouble import Trouble
from sensorpool.model.values import Milliseconds
from sensorpool.store import settling, troubles
from sensorpool.store.dialects import count_rows
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import poke_quarantine as q


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
