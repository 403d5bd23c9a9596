"""The end of instances and the deletion of groups. Every writer of a terminal state calls, in this order:

1. `lock_groups`, in hashcode order, in a statement of its own;
2. `write_verdicts` on the members;
3. `let_go`: later statements, with a fresh snapshot, delete the groups that have no sensing member left, and give the
   others the interval and deadline of their remaining members.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, all_, bindparam, delete, func, select, update

from sensorpool.errors import CountMismatch
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Key, Member, Milliseconds, Settled, Verdict
from sensorpool.store import landings
from sensorpool.store.database import fetch, fetched, table_prefix
from sensorpool.store.dialects import POSTGRES_CLOCK, among, count_rows
from sensorpool.store.engine import transaction_limits
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s

STATEMENT = 4 * 2**20  # bytes of verdicts in one statement
_ROW = 64  # bytes of a verdict without its texts

_THERE = select(g.c.id).where(among(g.c.id))
_IN_ORDER = _THERE.order_by(g.c.hashcode, g.c.id)
_LOCK = _IN_ORDER.with_for_update()
_LOCK_FREE = _IN_ORDER.with_for_update(skip_locked=True)

_MEMBERS = select(
    s.c.id,
    s.c.group_id,
    s.c.joined_version,
    s.c.start_date,
    s.c.timeout_at,
    s.c.next_deadline,
    s.c.execution_context,
    s.c.external_id.is_not(None),
).where(among(s.c.group_id), s.c.state == State.SENSING)

_FREE_MEMBERS = select(s.c.id).where(s.c.state == State.SENSING, among(s.c.group_id)).with_for_update(skip_locked=True)

_WRITTEN = select(s.c.id, s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index, s.c.try_number, s.c.on_settled).where(
    among(s.c.id)
)


# The texts of each instance are looked up by its id. After a mass settle, the planner would expect a single sensing
# row, and a join would compare each row with each other.
_WRITE_ALIKE = """
UPDATE {prefix}sensor_instance s
SET state = %(state)s, ending = %(ending)s, reason = %(reasons)s::jsonb ->> s.id::text,
    xcom_value = %(values)s::jsonb ->> s.id::text, settled_at = %(now)s
WHERE s.id = ANY (%(ids)s::bigint[]) AND s.state = 'sensing'
RETURNING s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.on_settled
"""


def _over_sensing(value: Any) -> Any:
    """Return a value over the sensing members of the group that is being updated."""
    return select(value).where(s.c.group_id == g.c.id, s.c.state == State.SENSING).correlate(g).scalar_subquery()


_STILL_SENSING = _over_sensing(s.c.id).element.limit(1).scalar_subquery()
# PostgreSQL reads it once, before the first group: of EXISTS it makes a join whose cost it cannot guess
_SENSING_GROUPS = func.array(_MEMBERS.with_only_columns(s.c.group_id).scalar_subquery())

_DELETE = delete(g).where(among(g.c.id), _STILL_SENSING.is_(None))
_DELETE_POSTGRES = delete(g).where(among(g.c.id), g.c.id != all_(_SENSING_GROUPS))
_DELETE_NOTED = landings.with_deleted(_DELETE_POSTGRES)


def begin(connection: Connection) -> Callable[[], Milliseconds] | None:
    """Set the limits of this transaction on PostgreSQL; return its clock, which `Database.now` takes.

    The time comes with the same answer, and goes on from there.
    """
    if connection.dialect.name != "postgresql":
        return None
    now = connection.exec_driver_sql(f"SELECT {POSTGRES_CLOCK}, {transaction_limits()}").scalar_one()
    asked_at = time.monotonic()
    return lambda: int(now + (time.monotonic() - asked_at) * 1000)


def lock_groups(connection: Connection, group_ids: Collection[int], *, free_only: bool = False) -> set[int]:
    """Lock the groups in hashcode order; return those that still exist.

    :param free_only: skip groups that another transaction has locked.
    """
    lock = _LOCK_FREE if free_only else _LOCK
    return set(connection.execute(lock, {"ids": list(group_ids)}).scalars()) if group_ids else set()


def there(connection: Connection, group_ids: Collection[int]) -> set[int]:
    """Return which of these groups exist, locked or not."""
    return set(connection.execute(_THERE, {"ids": list(group_ids)}).scalars()) if group_ids else set()


def sensing_members(connection: Connection, group_ids: Collection[int]) -> list[Member]:
    """Return the sensing instances of groups."""
    if not group_ids:
        return []
    return list(map(Member._make, fetched(connection.execute(_MEMBERS, {"ids": list(group_ids)}))))


def held_groups(connection: Connection, members: Collection[Member]) -> set[int]:
    """Lock the sensing members of locked groups; return the groups with a member that is locked elsewhere."""
    if not members:
        return set()
    group_ids = {member.group_id for member in members}
    free = set(connection.execute(_FREE_MEMBERS, {"ids": list(group_ids)}).scalars())
    return {member.group_id for member in members if member.id not in free}


def groups_of(connection: Connection, instance_ids: Collection[int]) -> dict[int, int]:
    """Return the group id of each of these instances that is sensing."""
    query = select(s.c.id, s.c.group_id).where(among(s.c.id), s.c.state == State.SENSING)
    return {row[0]: row[1] for row in connection.execute(query, {"ids": list(instance_ids)})}


def write_verdicts(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> list[Settled]:
    """Give each instance its terminal state; return the settled instances.

    :raises CountMismatch: when an instance was no longer sensing; then nothing is kept.
    """
    write = _write_alike if connection.dialect.name == "postgresql" else _write_verdicts
    rows: list[Any] = []
    for some in _in_batches(verdicts):
        rows += write(connection, some, now)
    if len(rows) != len(verdicts):
        raise CountMismatch(f"{len(rows)} of {len(verdicts)} instances took their terminal state")
    by_id = {verdict.instance_id: verdict for verdict in verdicts}
    return [_just_settled(by_id[row[0]], row, now) for row in rows]


def _in_batches(verdicts: Sequence[Verdict]) -> Iterator[Sequence[Verdict]]:
    """Yield verdicts in batches of at most `STATEMENT` bytes, or of a single verdict."""
    start = weight = 0
    for place, each in enumerate(verdicts):
        own = _ROW + len(each.reason or "") + len(each.xcom_value or "")
        if weight + own > STATEMENT and place > start:
            yield verdicts[start:place]
            start, weight = place, 0
        weight += own
    if start < len(verdicts):
        yield verdicts[start:] if start else verdicts


def _write_verdicts(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> Sequence[Any]:
    """Write the rows one by one; return the columns of `_WRITTEN`, or nothing if an instance was no longer sensing."""
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
        return ()
    return connection.execute(_WRITTEN, {"ids": [v.instance_id for v in verdicts]}).all()


def _write_alike(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> list[Any]:
    """Write the rows by a statement for each state and ending; return the columns of `_WRITTEN`."""
    alike: dict[tuple[State, Ending], list[Verdict]] = {}
    for each in verdicts:
        alike.setdefault((each.state, each.ending), []).append(each)
    rows: list[Any] = []
    for (state, ending), some in alike.items():
        values = {
            "state": state,
            "ending": ending,
            "now": now,
            "ids": f"{{{','.join([str(v.instance_id) for v in some])}}}",
            "reasons": _by_id({v.instance_id: v.reason for v in some if v.reason is not None}),
            "values": _by_id({v.instance_id: v.xcom_value for v in some if v.xcom_value is not None}),
        }
        rows += fetch(connection, _WRITE_ALIKE.format(prefix=table_prefix(connection)), values)
    return rows


def _by_id(texts: dict[int, str]) -> str | None:
    return json.dumps(texts) if texts else None


def _just_settled(verdict: Verdict, row: Any, now: Milliseconds) -> Settled:
    """Join a verdict with the columns of `_WRITTEN`: the columns that were just written need not be read."""
    _, _, state, ending, reason, xcom_value = verdict
    return Settled(row[0], Key(*row[1:6]), state, ending, reason, xcom_value, now, row[6])


def write_steps(connection: Connection, grown: Sequence[tuple[Member, Milliseconds]]) -> None:
    """Write the grown steps of members (exponential backoff)."""
    connection.execute(
        update(s)
        .where(s.c.id == bindparam("instance_id"))
        .values(poke_interval=bindparam("b_step"), next_deadline=bindparam("b_deadline")),
        [{"instance_id": member.id, "b_step": step, "b_deadline": member.next_deadline} for member, step in grown],
    )


def _delete(connection: Connection, empty: Collection[int]) -> int:
    """Delete groups without a sensing member, and record that they ended; return how many were deleted."""
    ids = {"ids": list(empty)}
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_DELETE_NOTED, ids).scalar_one())
    landings.note(connection, empty)
    return connection.execute(_DELETE, ids).rowcount


def let_go(connection: Connection, empty: Collection[int], staying: Collection[int]) -> None:
    """Delete the emptied groups, and record that they ended; give the others the values of their remaining members.

    :raises CountMismatch: when a group that should be empty is not.
    """
    if empty:
        gone = _delete(connection, empty)
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
