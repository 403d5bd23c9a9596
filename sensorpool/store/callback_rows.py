"""Callbacks that wait for their broker: a row for each instance that has some, from the settle until they are sent.

An `on_late` task has a row, too: its id is the negative id of the group that is late.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from sensorpool.model.callback_messages import messages
from sensorpool.model.values import Milliseconds, Settled
from sensorpool.store.dialects import among, count_rows
from sensorpool.store.outbox_rows import LONGEST_PAUSE
from sensorpool.store.schema import callback as c

HEAD_START = 10_000  # milliseconds for the process that settled the instance to send the task
_NAME = 250  # characters
_CAUSE = 500  # characters
_SHOWN = [column for column in c.c if column.name != "argument"]  # what all readers may see


class WaitingCallback(NamedTuple):
    """A waiting callback, and how often it was tried.

    :param argument: JSON, of an `on_late` task; None: the callbacks of an instance.
    """

    instance_id: int
    tries: int
    task: str
    argument: str | None


class Backlog(NamedTuple):
    """The waiting callbacks of one task."""

    task: str
    waiting: int
    oldest: Milliseconds
    cause: str | None


def note(connection: Connection, settled: Sequence[Settled], now: Milliseconds) -> None:
    """Insert rows for the callbacks of a flush."""
    if rows := [row for each in settled if (row := _row(each, now))]:
        connection.execute(insert(c), rows)


def note_late(connection: Connection, task: str, arguments: Mapping[int, str], now: Milliseconds) -> None:
    """Insert rows for the `on_late` task.

    :param arguments: what the task gets, as JSON, for each late group.
    """
    rows = [
        {"instance_id": -group_id, "task": task, "created_at": now, "next_try_at": now, "argument": argument}
        for group_id, argument in arguments.items()
    ]
    connection.execute(insert(c), rows)


def claim(
    connection: Connection, now: Milliseconds, tasks: Collection[str], until: Milliseconds, most: int
) -> list[WaitingCallback]:
    """Claim callbacks that are due, the longest due first: no other process tries them before ``until``.

    :param tasks: the tasks that may be sent. A row without a signature is claimed too: it can only be dropped.
    :param most: the most callbacks to claim.
    """
    due = or_(c.c.next_try_at <= now, c.c.next_try_at > now + LONGEST_PAUSE)  # later only if the clock was put back
    query = select(*(c.c[name] for name in WaitingCallback._fields)).where(due, c.c.task.in_([*tasks, ""]))
    query = query.order_by(c.c.next_try_at, c.c.instance_id).limit(most).with_for_update()
    found = [WaitingCallback(*row) for row in connection.execute(query)]
    if found:
        ids = [each.instance_id for each in found]
        connection.execute(update(c).where(among(c.c.instance_id)).values(next_try_at=until), {"ids": ids})
    return found


def tasks(connection: Connection) -> list[str]:
    """Return the names of the tasks that wait."""
    return list(connection.execute(select(c.c.task).distinct()).scalars())


def hurry(connection: Connection, now: Milliseconds) -> int:
    """Have all callbacks tried at the next round of rescue; return how many."""
    return connection.execute(update(c).values(next_try_at=now, tries=0)).rowcount


def waiting(connection: Connection, most: int) -> list[Any]:
    """Return the rows of the callbacks that wait, the longest waiting first."""
    query = select(*_SHOWN).order_by(c.c.created_at, c.c.instance_id).limit(most)
    return list(connection.execute(query).mappings())


def unclaim(connection: Connection, instance_ids: Collection[int], now: Milliseconds) -> None:
    """Release callbacks that were claimed and not tried."""
    if instance_ids:
        connection.execute(update(c).where(among(c.c.instance_id)).values(next_try_at=now), {"ids": list(instance_ids)})


def sent(connection: Connection, instance_ids: Collection[int]) -> None:
    """Delete the rows of callbacks that their broker has taken."""
    connection.execute(delete(c).where(among(c.c.instance_id)), {"ids": list(instance_ids)})


def put_off(connection: Connection, instance_id: int, tries: int, until: Milliseconds, cause: str) -> None:
    """Note why a callback was not sent, and when it is tried again."""
    values = {"tries": tries, "next_try_at": until, "cause": cause[:_CAUSE]}
    connection.execute(update(c).where(c.c.instance_id == instance_id).values(values))


def note_not_allowed(connection: Connection, now: Milliseconds, tasks: Collection[str], cause: str) -> int:
    """Note the cause at callbacks whose task this process may not send; return at how many it is new."""
    of_others = and_(c.c.next_try_at <= now, c.c.task.not_in([*tasks, ""]), c.c.cause.is_(None))
    return connection.execute(update(c).where(of_others).values(cause=cause[:_CAUSE])).rowcount


def find(connection: Connection, instance_id: int) -> Any | None:
    """Return the row of an instance's waiting callback, or None."""
    return connection.execute(select(*_SHOWN).where(c.c.instance_id == instance_id)).mappings().one_or_none()


def backlog(connection: Connection) -> list[Backlog]:
    """Return the waiting callbacks by task."""
    query = select(c.c.task, count_rows, func.min(c.c.created_at), func.max(c.c.cause)).group_by(c.c.task)
    return [Backlog(*row) for row in connection.execute(query.order_by(c.c.task))]


def _nameable(task: str) -> str:
    """Return a task's name as every database can keep it: a row that was edited by hand must not hold up a settle."""
    return task.replace("\x00", "").encode(errors="replace").decode()[:_NAME]


def _row(settled: Settled, now: Milliseconds) -> dict[str, Any] | None:
    """Return the row of an instance's callbacks; None if none is sent for its end."""
    try:
        found = messages(settled.on_settled, settled.state)
    except ValueError:
        task = ""  # a garbled row: it is told of, and dropped
    else:
        if not found:
            return None
        task = found[0]["task"]
    return {
        "instance_id": settled.id,
        "task": _nameable(task),
        "created_at": now,
        "next_try_at": now + HEAD_START,
    }
