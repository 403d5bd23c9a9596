"""Outbox rows: each stands for a flush whose results are still to be published."""

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, or_, select, update

from sensorpool.model.json_text import read_json
from sensorpool.model.values import Milliseconds
from sensorpool.store.schema import outbox

LONGEST_PAUSE = 900_000  # milliseconds between two attempts at one message


class Unpublished(NamedTuple):
    """A waiting outbox row."""

    id: int
    instance_ids: list[int]
    tries: int


def note(connection: Connection, instance_ids: Sequence[int], now: Milliseconds) -> int:
    """Write the outbox row of a flush; return its id."""
    row = {"created_at": now, "instance_ids": json.dumps(list(instance_ids))}
    key = connection.execute(insert(outbox).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def is_noted(connection: Connection, outbox_id: int, instance_ids: Collection[int]) -> bool:
    """Whether the outbox row of a flush exists: after a rollback, another flush may have got its id."""
    found = connection.execute(select(outbox.c.instance_ids).where(outbox.c.id == outbox_id)).scalar()
    return found is not None and set(_read_ids(found)) == set(instance_ids)


def forget(connection: Connection, outbox_id: int) -> None:
    """Delete an outbox row: its message was sent."""
    connection.execute(delete(outbox).where(outbox.c.id == outbox_id))


def unpublished(
    connection: Connection, now: Milliseconds, age: Milliseconds, most: int, *, after: int = 0
) -> list[Unpublished]:
    """Return outbox rows older than ``age`` that may be tried, the oldest first: a dead process left them, or a broker
    refused them.

    A row from the future counts as old: a clock that is put back by an hour must not delay results by an hour.

    :param most: the most rows to return.
    :param after: only rows with a greater id.
    """
    old = or_(outbox.c.created_at < now - age, outbox.c.created_at > now)
    due = or_(outbox.c.next_try_at.is_(None), outbox.c.next_try_at <= now, outbox.c.next_try_at > now + LONGEST_PAUSE)
    query = select(outbox.c.id, outbox.c.instance_ids, outbox.c.tries)
    rows = connection.execute(query.where(old, due, outbox.c.id > after).order_by(outbox.c.id).limit(most))
    return [Unpublished(row[0], _read_ids(row[1]), row[2]) for row in rows]


def put_off(connection: Connection, outbox_id: int, tries: int, until: Milliseconds) -> None:
    """Note that an outbox row was tried in vain, and when it is tried again; other rows have their turn first."""
    connection.execute(update(outbox).where(outbox.c.id == outbox_id).values(tries=tries, next_try_at=until))


def _read_ids(text: str) -> list[int]:
    """Read the ids of an outbox row; a garbled row names no instance."""
    ids = read_json(text)
    return [i for i in ids if type(i) is int and 0 < i < 2**63] if isinstance(ids, list) else []
