"""One instance in detail, for `show`, and lists of instances. Plain values that print as JSON."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from sensorpool.admin.look import outage_said
from sensorpool.client import wait
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation.redaction import printable
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.outages import Outages
from sensorpool.leases.poke_log import Poked, pokes_of
from sensorpool.model.budgets import Budgets
from sensorpool.model.callback_messages import shown
from sensorpool.model.due import next_period_at
from sensorpool.model.identity import identify
from sensorpool.model.json_text import read_json
from sensorpool.model.states import State
from sensorpool.model.usual_landing import FACTOR, earliest, family_of
from sensorpool.model.values import Milliseconds
from sensorpool.model.words import spell_time
from sensorpool.store import callback_rows, inspecting, troubles
from sensorpool.store.database_errors import is_denied
from sensorpool.store.inspecting import Selection
from sensorpool.store.late_conditions import UsualLandings

SHOWN_MEMBERS = 20
OF_POKES = ("last_poke_at", "last_outcome", "last_reason", "traceback", "next_poke_at", "next_poke_because")
SHOWN_POKES = 20
NOT_KEPT = "not known: Redis keeps the pokes of some intervals, and so many of each shard range"
_ID_LENGTH = 12  # hexadecimal digits


def show(pool: PoolView, instance_id: int, *, of_others: bool = True) -> dict[str, Any]:
    """Return all that the pool knows of one instance.

    :param of_others: whether deadlines of other DAGs may be told, where one of them brings the next poke.
    :raises Unknown: when there is no such instance.
    """
    database = pool.database
    row = instance(pool, instance_id)
    unreachable = None
    try:
        pool.workers()
    except Unreachable as error:
        unreachable = str(error)
    shown: dict[str, Any] = {
        "id": row["id"],
        "state": row["state"],
        "reason": row["reason"],
        "op_classpath": row["op_classpath"],
        "poke_context": read_json(row["poke_context"], row["poke_context"]),
        **{name: row[name] for name in ("dag_id", "task_id", "run_id", "map_index", "try_number")},
        "execution_context": read_json(row["execution_context"], row["execution_context"]),
        "waiting_since": spell_time(row["start_date"]),
        "timeout_at": spell_time(row["timeout_at"]),
        "settled_at": spell_time(row["settled_at"]),
        "ending": row["ending"],
        "external_id": row["external_id"],
        "xcom_value": None if row["xcom_value"] is None else read_json(row["xcom_value"], row["xcom_value"]),
        "on_settled": _callback(pool, row),
        "group_id": row["group_id"],
        "hashcode": row["hashcode"],
        "shardcode": row["shardcode"],
        "backend": None,
        "members": 0,
        "shares_with": [],
        **dict.fromkeys(OF_POKES),
        "last_pokes": [],
        "is_sparse": False,
        "quarantined": _quarantine_of(pool, row),
        "unreachable": unreachable,  # why Redis was not asked further
    }
    add_last(pool, shown)
    group = database.read(inspecting.group, row["group_id"])
    if group is not None and row["state"] == State.SENSING:
        members = database.read(inspecting.others_of_group, row["group_id"], SHOWN_MEMBERS + 1)
        shown["backend"], shown["members"] = group["backend"] or row["op_classpath"], group["members"]
        shown["shares_with"] = [dict(member) for member in members if member["id"] != instance_id][:SHOWN_MEMBERS]
        dag_ids = None if of_others else [row["dag_id"]]
        add_next(pool, shown, group, database.read(database.now), dag_ids)
    return shown


def add_last(pool: PoolView, shown: dict[str, Any]) -> None:
    """Add the last pokes, as far as Redis remembers them, and the traceback of the last one if it raised an error."""
    try:
        if shown["unreachable"] is not None:  # a further question would wait as long
            raise Unreachable(shown["unreachable"])
        records = pool.leases.poke_log.records(pool.range_of(shown["shardcode"]))
        pokes = pokes_of(records, shown["group_id"], SHOWN_POKES)
    except Unreachable as error:
        shown["last_outcome"], shown["unreachable"] = "not known: Redis cannot be asked", str(error)
        return
    if pokes:
        poked, shown["last_pokes"] = pokes[-1], [_poke(each) for each in pokes]
        shown["last_poke_at"], shown["last_outcome"] = spell_time(poked.at), str(poked.outcome)
        shown["last_reason"], shown["traceback"] = poked.reason, poked.traceback
    elif shown["state"] == State.SENSING:
        shown["last_outcome"] = NOT_KEPT


def _poke(poked: Poked) -> dict[str, Any]:
    return {
        "at": spell_time(poked.at),
        "outcome": str(poked.outcome),
        "seconds": poked.seconds,
        "reason": poked.reason,
    }


def add_next(
    pool: PoolView, shown: dict[str, Any], group: Any, now: Milliseconds, dag_ids: Collection[str] | None = None
) -> None:
    """Add when the group is due next, and why.

    :param dag_ids: the DAGs whose deadlines may be told; None: all.
    """
    interval = max(1, group["poke_interval"])  # 0 is an edited row
    at = next_period_at(now, interval, group["phase"])
    because = f"every {interval / 1000:g} s"
    if (until := _sparse_until(pool, group, interval, now)) is not None and now < until + interval:
        shown["is_sparse"] = True  # the poke before was a sparse one, perhaps
    if until is not None and now < until:
        in_turn = next_period_at(until - 1, interval, group["phase"])
        at = min(in_turn, next_period_at(now, FACTOR * interval, group["phase"]))
        because = f"every {FACTOR * interval / 1000:g} s: it never landed so early"
        if dag_ids is None:  # others could conclude when a condition of a DAG landed that they may not see
            because += f"; every {interval / 1000:g} s from {spell_time(until)} on"
    if group["next_deadline"] is not None and now < group["next_deadline"] < at:
        if group["next_deadline"] == pool.database.read(inspecting.earliest_timeout, group["id"], dag_ids):
            at, because = group["next_deadline"], "a member's deadline comes: one poke before a timeout"
        elif dag_ids is None:  # to others it could be a deadline of a DAG that they may not see
            at, because = group["next_deadline"], "the step of a member's exponential_backoff grows then"
    if shown["last_poke_at"] is None and now - group["registered_at"] < group["poke_interval"]:
        at, because, shown["last_outcome"] = now, "it was not poked yet", None
    try:
        if shown["unreachable"] is not None:
            raise Unreachable(shown["unreachable"])
        backend = group["backend"] or group["op_classpath"]
        outage = next((each for each in Outages(pool.leases.store).away() if each.backend == backend), None)
        limit = Budgets(pool.settings.budgets).of(backend)
        budget = None if limit is None else BudgetsLeft(pool.leases.store).look([limit])[0]
    except Unreachable:
        outage, budget = None, None
    trouble = pool.database.read(troubles.of_group, group["id"])
    if trouble.is_isolated:
        because += f"; poked in a child process: {trouble}"
    if trouble.overruns > 1:
        because += f"; {trouble.overruns} pokes in a row overran SENSORPOOL_POKE_TIMEOUT"
    if trouble.failing_since is not None:
        because += f"; its pokes have failed since {spell_time(trouble.failing_since)}"
    if trouble.unpokeable_since is not None:
        because += f"; no process could poke it since {spell_time(trouble.unpokeable_since)}: {trouble.cause}"
    if outage is not None:
        because += f"; its {outage_said(outage)}, and before a deadline one poke at a time asks it"
    if budget is not None and budget.waiting:
        because += f"; {budget.waiting:,} groups wait for the budget of {budget.budget.pattern} ({budget.budget}), "
        because += f"for up to {budget.longest:.0f} s"
    shown["next_poke_at"], shown["next_poke_because"] = spell_time(at), because


def _sparse_until(pool: PoolView, group: Any, interval: Milliseconds, now: Milliseconds) -> Milliseconds | None:
    """Return until when the condition is poked more seldom (the setting ``adaptive``); None: it never is."""
    if not pool.settings.adaptive:
        return None
    family = family_of(group)
    usual = UsualLandings(pool.database).of([family], now)[family]
    first = earliest(usual, group["logical_date"], group["registered_at"])
    return None if first is None else first - FACTOR * interval


def id_of(digest: bytes) -> str:
    """Return the id of a condition in quarantine, which does not depend on an instance that waited for it."""
    return f"q{bytes(digest).hex()[:_ID_LENGTH]}"


def instance(pool: PoolView, instance_id: int) -> Any:
    """Return the whole row of an instance.

    :raises Unknown: when there is no such instance.
    """
    return wait.row(pool.database, instance_id)


def list_instances(pool: PoolView, selection: Selection, most: int) -> list[dict[str, Any]]:
    """Return the instances that are wanted, the newest first."""
    if not _can_be(selection):
        return []
    shown = ("id", "state", "dag_id", "task_id", "run_id", "map_index", "try_number", "op_classpath", "ending")
    return [
        {
            **{name: row[name] for name in shown},
            "poke_context": read_json(text, text) if (text := row.get("poke_context")) is not None else None,
            "waiting_since": spell_time(row["start_date"]),
            "timeout_at": spell_time(row["timeout_at"]),
            "settled_at": spell_time(row["settled_at"]),
            "reason": row["reason"],
        }
        for row in _read(pool, inspecting.instances, selection, most)
    ]


def count_instances(pool: PoolView, selection: Selection) -> int:
    """Return how many instances are wanted, on all pages."""
    return _read(pool, inspecting.count_instances, selection) if _can_be(selection) else 0


def _read(pool: PoolView, question: Callable[..., Any], selection: Selection, *more: int) -> Any:
    """Ask for instances, without their contexts if our role may not read them (docs/security.md)."""
    try:
        return pool.database.read(question, selection, *more)
    except Unreachable as error:
        if error.__cause__ is None or not is_denied(error.__cause__):
            raise
        return pool.database.read(question, replace(selection, contexts=False), *more)


def _can_be(selection: Selection) -> bool:
    """Whether the texts can be registered; some databases cannot look for others."""
    return all(printable(text) == text for text in selection.texts())


def _callback(pool: PoolView, row: Any) -> str | None:
    """Describe the state of an instance's callbacks; None if it has none."""
    if row["on_settled"] is None:
        return None
    task = printable(shown(row["on_settled"], row["state"]))
    if not task:
        return f"none is sent for the state {row['state']}"
    if row["state"] == State.SENSING:
        return f"{task} is sent when it settles"
    waiting = pool.database.read(callback_rows.find, row["id"])
    if waiting is None:
        return f"{task} was sent"
    said = f"{task} waits to be sent, tried {waiting['tries']} times, next at {spell_time(waiting['next_try_at'])}"
    return f"{said}: {waiting['cause']}" if waiting["cause"] else said


def _quarantine_of(pool: PoolView, row: Any) -> str | None:
    """Describe since when and why an instance's condition is in quarantine, with the mend; None if it is not."""
    try:
        digest = identify(row["op_classpath"], read_json(row["poke_context"])).digest
    except Refused:
        return None  # a row that was edited by hand: such a condition cannot be registered
    found = pool.database.read(troubles.quarantined, [digest])
    if not found:
        return None
    why = f"since {spell_time(found[0]['since'])}: {found[0]['crashes']} crashes, the last time: {found[0]['reason']}"
    return f"{why}; `sensorpool release {id_of(digest)}` lets it out"
