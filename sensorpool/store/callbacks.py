"""`on_settled` tasks that wait to be taken by their broker: one row each, from the settle until it has gone out."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from sensorpool.model.json_text import read_json
from sensorpool.model.values import Milliseconds, Settled
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.outbox_rows import LONGEST_PAUSE
from sensorpool.store.schema import callback as c

HEAD_START = 10_000  # milliseconds: for whoever settled it, to send it
_NAME = 250  # characters
_CAUSE = 500  # characters


class Waiting(NamedTuple):
    """A callback that waits, and how often it was tried."""

    instance_id: int
    tries: int


class Backlog(NamedTuple):
    """What waits of one task."""

    task: str
    waiting: int
    oldest: Milliseconds
    cause: str | None


def note(connection: Connection, settled: Sequence[Settled], now: Milliseconds) -> None:
    """Note the callbacks of a flush."""
    if rows := [_row(each, now) for each in settled if each.on_settled is not None]:
        connection.execute(insert(c), rows)


def adopt(connection: Connection, settled: Sequence[Settled], now: Milliseconds) -> None:
    """Note callbacks that an older version left with their results; those that have a row keep it."""
    wanted = {each.id: each for each in settled if each.on_settled is not None}
    if wanted:
        there = set(
            connection.execute(select(c.c.instance_id).where(among(c.c.instance_id)), {"ids": list(wanted)}).scalars()
        )
        if rows := [_row(each, now) | {"next_try_at": now} for each in wanted.values() if each.id not in there]:
            connection.execute(insert(c), rows)


def claim(
    connection: Connection, now: Milliseconds, tasks: Collection[str], until: Milliseconds, most: int
) -> list[Waiting]:
    """Take callbacks that are due, the longest due first, so that no other process tries them before ``until``.

    :param tasks: those that may be sent; what is no signature at all may be taken too, for it can only be dropped.
    """
    due = or_(c.c.next_try_at <= now, c.c.next_try_at > now + LONGEST_PAUSE)  # a clock that was put back
    query = select(c.c.instance_id, c.c.tries).where(due, c.c.task.in_([*tasks, ""]))
    query = query.order_by(c.c.next_try_at, c.c.instance_id).limit(most).with_for_update()
    found = [Waiting(*row) for row in connection.execute(query)]
    if found:
        ids = [each.instance_id for each in found]
        connection.execute(update(c).where(among(c.c.instance_id)).values(next_try_at=until), {"ids": ids})
    return found


def unclaim(connection: Connection, instance_ids: Collection[int], now: Milliseconds) -> None:
    """Give back callbacks that were claimed and not tried."""
    if instance_ids:
        connection.execute(update(c).where(among(c.c.instance_id)).values(next_try_at=now), {"ids": list(instance_ids)})


def sent(connection: Connection, instance_ids: Collection[int]) -> None:
    """Forget callbacks: their broker has them."""
    connection.execute(delete(c).where(among(c.c.instance_id)), {"ids": list(instance_ids)})


def put_off(connection: Connection, instance_id: int, tries: int, until: Milliseconds, cause: str) -> None:
    """Note why a callback did not go, and when it is tried again."""
    values = {"tries": tries, "next_try_at": until, "cause": cause[:_CAUSE]}
    connection.execute(update(c).where(c.c.instance_id == instance_id).values(values))


def note_not_allowed(connection: Connection, now: Milliseconds, tasks: Collection[str], cause: str) -> int:
    """Note why callbacks wait whose task this process may not send; another one may. Return how many are new."""
    of_others = and_(c.c.next_try_at <= now, c.c.task.not_in([*tasks, ""]), c.c.cause.is_(None))
    return connection.execute(update(c).where(of_others).values(cause=cause[:_CAUSE])).rowcount


def find(connection: Connection, instance_id: int) -> Any | None:
    """Return the row of a callback that waits."""
    return connection.execute(select(c).where(c.c.instance_id == instance_id)).mappings().one_or_none()


def backlog(connection: Connection) -> list[Backlog]:
    """Return what waits, by task."""
    query = select(c.c.task, count_rows, func.min(c.c.created_at), func.max(c.c.cause)).group_by(c.c.task)
    return [Backlog(*row) for row in connection.execute(query.order_by(c.c.task))]


def _row(settled: Settled, now: Milliseconds) -> dict[str, Any]:
    signature = read_json(settled.on_settled or "")
    task = signature.get("task") if isinstance(signature, dict) else None
    return {
        "instance_id": settled.id,
        "task": task[:_NAME] if isinstance(task, str) else "",
        "created_at": now,
        "next_try_at": now + HEAD_START,
    }
