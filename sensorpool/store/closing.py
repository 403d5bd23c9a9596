"""Instances end and groups go. Whoever writes a terminal state comes this way, in this order:

1. `lock_groups`, in hashcode order, in a statement of its own;
2. `write_verdicts` on the members;
3. `let_go`: in later statements, with their fresh snapshot, the groups that have no sensing member left are deleted
   and the others take interval and deadline of those who stay.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from sensorpool.errors import CountMismatch
from sensorpool.model import Key, Member, Milliseconds, Settled, Verdict
from sensorpool.rows import read_json
from sensorpool.schema import outbox
from sensorpool.schema import poke_group as g
from sensorpool.schema import sensor_instance as s
from sensorpool.states import Ending, State
from sensorpool.store import closing_postgres
from sensorpool.store.functions import among, count_rows

_LOCK = select(g.c.id).where(among(g.c.id)).order_by(g.c.hashcode, g.c.id).with_for_update()

_MEMBERS = select(
    s.c.id,
    s.c.group_id,
    s.c.joined_version,
    s.c.start_date,
    s.c.timeout_at,
    s.c.next_deadline,
    s.c.execution_context,
).where(among(s.c.group_id), s.c.state == State.SENSING)

_SETTLED = select(
    s.c.id,
    s.c.dag_id,
    s.c.task_id,
    s.c.run_id,
    s.c.map_index,
    s.c.try_number,
    s.c.state,
    s.c.ending,
    s.c.reason,
    s.c.xcom_value,
    s.c.settled_at,
    s.c.on_settled,
).where(among(s.c.id))


def _over_sensing(value: Any) -> Any:
    """A value over those who sense in the group that is being updated."""
    return select(value).where(s.c.group_id == g.c.id, s.c.state == State.SENSING).correlate(g).scalar_subquery()


_ENDINGS = {
    State.SUCCESS: Ending.LANDED,
    State.FAILED: Ending.FAIL,
    State.SKIPPED: Ending.SKIP,
    State.CANCELLED: Ending.CANCELLED,
}

# one look at the index for each group: of EXISTS, PostgreSQL makes a join whose cost it cannot guess
_STILL_SENSING = _over_sensing(s.c.id).element.limit(1).scalar_subquery()


def begin(connection: Connection, idle_limit: Milliseconds) -> None:
    """Tell PostgreSQL how this transaction wants to be run.

    It ends it if its process freezes in it, so that its locks hold up nobody for long. And it reads indexes: whenever
    thousands have just settled, its statistics say that nobody waits, and that the whole table is read soonest.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"SET LOCAL idle_in_transaction_session_timeout = {int(idle_limit)}; SET LOCAL enable_seqscan = off"
        )


def lock_groups(connection: Connection, group_ids: Collection[int]) -> list[int]:
    """Lock the groups in hashcode order; return those that are still there."""
    return list(connection.execute(_LOCK, {"ids": list(group_ids)}).scalars()) if group_ids else []


def sensing_members(connection: Connection, group_ids: Collection[int]) -> list[Member]:
    """Return the sensing instances of groups."""
    return [Member(*row) for row in connection.execute(_MEMBERS, {"ids": list(group_ids)})] if group_ids else []


def groups_of(connection: Connection, instance_ids: Collection[int]) -> dict[int, int]:
    """Return the group id of each of these instances that is sensing."""
    query = select(s.c.id, s.c.group_id).where(among(s.c.id), s.c.state == State.SENSING)
    return {row[0]: row[1] for row in connection.execute(query, {"ids": list(instance_ids)})}


def write_verdicts(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> list[Settled]:
    """Give each instance its terminal state; return them as they are published.

    :raises CountMismatch: when one of them was not sensing any more; nothing is kept then.
    """
    if connection.dialect.name == "postgresql":
        rows = closing_postgres.write_verdicts(connection, verdicts, now)
        if len(rows) != len(verdicts):
            raise CountMismatch(f"{len(rows)} of {len(verdicts)} instances took their terminal state")
        return [_settled(row) for row in rows]
    written = connection.execute(
        update(s)
        .where(s.c.id == bindparam("instance_id"), s.c.state == State.SENSING)
        .values(
            state=bindparam("b_state"),
            ending=bindparam("b_ending"),
            reason=bindparam("b_reason"),
            xcom_value=bindparam("b_xcom"),
            settled_at=now,
        ),
        [
            {
                "instance_id": v.instance_id,
                "b_state": v.state,
                "b_ending": v.ending,
                "b_reason": v.reason,
                "b_xcom": v.xcom_value,
            }
            for v in verdicts
        ],
    ).rowcount
    if written != len(verdicts):
        raise CountMismatch(f"{written} of {len(verdicts)} instances took their terminal state")
    return settled(connection, [verdict.instance_id for verdict in verdicts])


def write_steps(connection: Connection, grown: Sequence[tuple[Member, Milliseconds]]) -> None:
    """Let the steps of members grow (exponential backoff)."""
    connection.execute(
        update(s)
        .where(s.c.id == bindparam("instance_id"))
        .values(poke_interval=bindparam("b_step"), next_deadline=bindparam("b_deadline")),
        [{"instance_id": member.id, "b_step": step, "b_deadline": member.next_deadline} for member, step in grown],
    )


def let_go(connection: Connection, empty: Collection[int], staying: Collection[int]) -> None:
    """Delete the groups that nobody waits for any more; give the others the step and deadline of those who stay.

    :raises CountMismatch: when a group that should be empty is not.
    """
    if empty:
        gone = connection.execute(
            delete(g).where(among(g.c.id), _STILL_SENSING.is_(None)), {"ids": list(empty)}
        ).rowcount
        if gone != len(empty):
            raise CountMismatch(f"{gone} of {len(empty)} groups without members could be deleted")
    if staying:
        connection.execute(
            update(g)
            .where(among(g.c.id))
            .values(
                poke_interval=_over_sensing(func.min(s.c.poke_interval)),
                next_deadline=_over_sensing(func.min(s.c.next_deadline)),
                members=_over_sensing(count_rows),
                version=g.c.version + 1,
            ),
            {"ids": list(staying)},
        )


def note_for_publishing(connection: Connection, instance_ids: Sequence[int], now: Milliseconds) -> int:
    """Write the outbox row of a flush; return its id."""
    row = {"created_at": now, "instance_ids": json.dumps(list(instance_ids))}
    key = connection.execute(insert(outbox).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def settled(connection: Connection, instance_ids: Iterable[int]) -> list[Settled]:
    """Return instances as they are published, without those that somebody gave a state that there is not."""
    rows = connection.execute(_SETTLED, {"ids": list(instance_ids)})
    found: list[Settled] = []
    for row in rows:
        with suppress(ValueError):
            found.append(_settled(row))
    return found


def _settled(row: Any) -> Settled:
    return Settled(row[0], Key(*row[1:6]), State(row[6]), _ending(row[7], row[6]), row[8], row[9], row[10], row[11])


def _ending(ending: str | None, state: str) -> Ending:
    """Read an ending; rows that an older version settled have none."""
    return _ENDINGS.get(State(state), Ending.CANCELLED) if ending is None else Ending(ending)


def published(connection: Connection, outbox_id: int) -> None:
    """Forget an outbox row: its message has gone out."""
    connection.execute(delete(outbox).where(outbox.c.id == outbox_id))


def unpublished(connection: Connection, now: Milliseconds, age: Milliseconds, most: int) -> list[tuple[int, list[int]]]:
    """Return outbox rows older than ``age``: what a dead process left behind. One from the future counts as old.

    Otherwise a clock that was put back by an hour would keep those who wait for an hour.
    """
    old = or_(outbox.c.created_at < now - age, outbox.c.created_at > now)
    query = select(outbox.c.id, outbox.c.instance_ids).where(old).order_by(outbox.c.id).limit(most)
    rows = connection.execute(query)
    return [(row[0], _read_ids(row[1])) for row in rows]


def _read_ids(text: str) -> list[int]:
    """Read an outbox row; one that somebody wrote over names nobody."""
    found = read_json(text)
    return [i for i in found if type(i) is int and 0 < i < 2**63] if isinstance(found, list) else []
