"""What an operator does to a pool.

What is done on the pages is recorded: who, when, what, and what came of it. What cannot be recorded is not done.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sensorpool.admin.instances import id_of
from sensorpool.client import wait
from sensorpool.client.pool import Pool
from sensorpool.client.pool_view import PoolView
from sensorpool.config.defaults import MEMORY
from sensorpool.errors import Refused, SensorpoolError, Unknown
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import printable
from sensorpool.model.json_text import read_json
from sensorpool.model.states import State
from sensorpool.model.words import spell_time
from sensorpool.store import action_log, inspecting, troubles
from sensorpool.store.conditions import Woken
from sensorpool.store.pool_id import restore_ids

_LONGEST_NAME = 250  # as the column
_LONGEST_SUBJECT = 1_000
_WINDOW = 500  # groups that `drain` reads in one statement

log = logger(__name__)


def poke_now(pool: Pool, group_id: int, who: str) -> str:
    """Have a condition poked at once, beside its interval; return what was done, in a sentence.

    :raises Unknown: when no instance waits for it.
    :raises Refused: when the leases are in the memory of another process.
    :raises Unreachable: when the database or Redis does not answer.
    """
    group = pool.database.read(inspecting.group, group_id) if 0 < group_id < 2**63 else None
    if group is None:
        raise Unknown(f"there is no condition {group_id} that an instance waits for")

    def do() -> str:
        pool.nudger.poke_soon([Woken(group_id, group["shardcode"])])
        return "it is poked as soon as a worker takes its range up"

    return _recorded(pool, who, "poke now", f"condition {group_id} of {group['op_classpath']}", do)


def cancel(pool: Pool, instance_id: int, who: str) -> str:
    """Cancel an instance; return what was done, in a sentence.

    :raises Unknown: when there is no such instance.
    :raises Refused: when it waits no more.
    :raises Unreachable: when the database does not answer.
    """
    row = _waiting(pool, instance_id)
    reason = f"cancelled by {_name(who)}"
    return _recorded(
        pool, who, "cancel", _subject(row), lambda: _said(pool.settler.cancel({instance_id: reason}), "cancelled")
    )


def hand_back(pool: Pool, instance_id: int, who: str) -> str:
    """Have a waiter poke by itself, in its own system: see `cancel`.

    :raises Refused: also when it has no system of its own: it came without an ``external_id``.
    """
    row = _waiting(pool, instance_id)
    if row["external_id"] is None:
        raise Refused(f"instance {instance_id} cannot be handed back: it is no task of Airflow's. Cancel it instead")
    reason = f"handed back by {_name(who)}"
    return _recorded(
        pool,
        who,
        "hand back",
        _subject(row),
        lambda: _said(pool.settler.hand_back({instance_id: reason}), "handed back"),
    )


def release(pool: Pool, condition_id: str, who: str) -> str:
    """Let a condition out of quarantine; return what was done, in a sentence.

    :param condition_id: as `quarantined` lists it.
    :raises Unknown: when it is not in quarantine.
    :raises Unreachable: when the database does not answer.
    """
    inside = {each["id"]: each for each in quarantined(pool)}
    if condition_id not in inside:
        raise Unknown(f"{printable(condition_id)[:20]} is not in quarantine")
    subject = f"{condition_id} of {inside[condition_id]['op_classpath']}"
    return _recorded(pool, who, "release", subject, lambda: _said(let_out(pool, [condition_id]), "released"))


def quarantined(pool: PoolView) -> list[dict[str, Any]]:
    """Return the conditions in quarantine, the newest first."""
    rows = pool.database.read(troubles.quarantined)
    return [
        {
            "id": id_of(row["digest"]),
            "op_classpath": row["op_classpath"],
            "poke_context": read_json(row["poke_context"], row["poke_context"]),
            "since": spell_time(row["since"]),
            "crashes": row["crashes"],
            "reason": row["reason"],
        }
        for row in rows
    ]


def let_out(pool: PoolView, ids: Sequence[str] | None) -> int:
    """Release conditions from quarantine, and forget their strikes; return how many were in quarantine.

    Instances that failed stay failed: register them again, or clear the tasks in Airflow.

    :param ids: as `quarantined` returns them; None: all conditions.
    :raises Unknown: when one of them is not in quarantine; then none is released.
    """
    if ids is None:
        return pool.database.run(troubles.let_out)
    inside = {id_of(row["digest"]): bytes(row["digest"]) for row in pool.database.read(troubles.quarantined)}
    for each in ids:
        if each not in inside:
            raise Unknown(f"{printable(each)[:40]} is not in quarantine: `sensorpool quarantine` lists what is")
    return pool.database.run(troubles.let_out, [inside[each] for each in ids])


def recorded(pool: Pool, before_id: int | None, most: int) -> list[dict[str, Any]]:
    """Return the newest recorded actions, or the newest before one.

    :raises Unreachable: when the database does not answer.
    """
    rows = pool.database.read(action_log.newest, before_id, most)
    return [{**row, "at": spell_time(row["at"])} for row in rows]


def drain(pool: Pool, rate: float) -> Iterator[int]:
    """Hand back all waiters that have a system of their own, as Airflow's tasks have, at most ``rate`` a second.

    :returns: the number handed back, batch by batch.
    :raises Unreachable: when the database does not answer; earlier batches stay handed back.
    """
    database, place = pool.database, 0
    at_once = max(1, round(rate))
    before = database.read(database.now) + 1
    while True:
        rows, last = database.read(inspecting.external_waiters, place, _WINDOW, before)
        ids = [row.id for row in rows]
        for start in range(0, len(ids), at_once):
            some = ids[start : start + at_once]
            yield pool.settler.hand_back(dict.fromkeys(some, "the pool is being drained"))
            if start + at_once < len(ids) or last is not None:
                time.sleep(len(some) / rate)
        if last is None:
            return
        place = last


class Restored(NamedTuple):
    """The new epoch: the pool's id, how many instances wait, and how many keys of Redis were deleted."""

    pool_id: str
    waiting: int
    deleted: int


def begin_epoch(pool: Pool) -> Restored:
    """Begin a new epoch. Nothing of the pool may run meanwhile.

    :raises Refused: when workers run.
    :raises Unreachable: when the database or Redis does not answer.
    """
    if workers := pool.workers():
        names = ", ".join(sorted({each.name for each in workers})[:3])
        raise Refused(f"workers of this pool run ({names}): stop all workers and beats first, and then say it again")
    deleted = 0 if pool.settings.redis_url == MEMORY else pool.leases.store.forget_all()
    pool_id = pool.database.run(restore_ids)
    _, waiting = pool.database.read(inspecting.count_waiting)
    return Restored(pool_id, waiting, deleted)


def _recorded(pool: Pool, who: str, what: str, subject: str, do: Callable[[], str]) -> str:
    database = pool.database
    now, name = database.read(database.now), _name(who)
    action_id = database.run(action_log.note, now, name, what, subject[:_LONGEST_SUBJECT])
    try:
        outcome = do()
    except SensorpoolError as error:
        database.run(action_log.conclude, action_id, f"not done: {error}")
        log.warning("an operator's action is not done", who=name, what=what, subject=subject, error=str(error))
        raise
    database.run(action_log.conclude, action_id, outcome)
    log.info("an operator has acted", who=name, what=what, subject=subject, outcome=outcome)
    return outcome


def _waiting(pool: Pool, instance_id: int) -> Any:
    row = wait.row(pool.database, instance_id)
    if row["state"] != State.SENSING:
        raise Refused(f"instance {instance_id} waits no more: it is {row['state']}")
    return row


def _subject(row: Any) -> str:
    key = (row["dag_id"], row["task_id"], row["run_id"], str(row["map_index"]), str(row["try_number"]))
    return f"instance {row['id']}: {' '.join(key)}"


def _said(count: int, done: str) -> str:
    return f"it is {done}" if count else f"it was not {done}: it had ended before"


def _name(who: str) -> str:
    return printable(who)[:_LONGEST_NAME] or "?"
