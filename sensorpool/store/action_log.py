"""The record of what operators did: who, when, what, and what came of it."""

from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from sensorpool.model.values import Milliseconds
from sensorpool.store.schema import action


def note(connection: Connection, at: Milliseconds, who: str, what: str, subject: str) -> int:
    """Note what an operator is about to do; return the id of the row."""
    row = {"at": at, "who": who, "what": what, "subject": subject}
    key = connection.execute(insert(action).values(row)).inserted_primary_key
    if key is None:
        raise RuntimeError("the database has named no id")
    return int(key[0])


def conclude(connection: Connection, action_id: int, outcome: str) -> None:
    """Add what came of an action."""
    connection.execute(update(action).where(action.c.id == action_id).values(outcome=outcome))


def newest(connection: Connection, before_id: int | None, most: int) -> list[Any]:
    """Return the newest actions, or the newest before one: the next page."""
    query = select(action).order_by(action.c.id.desc()).limit(most)
    if before_id is not None:
        query = query.where(action.c.id < before_id)
    return list(connection.execute(query).mappings())


def prune(connection: Connection, before: Milliseconds, most: int) -> int:
    """Delete the oldest rows, if they are from before ``before``, ``most`` at a time; return how many were deleted."""
    oldest = connection.execute(select(action.c.id, action.c.at).order_by(action.c.id).limit(most)).all()
    old = [row.id for row in oldest if row.at < before]
    return connection.execute(delete(action).where(action.c.id.in_(old))).rowcount if old else 0
