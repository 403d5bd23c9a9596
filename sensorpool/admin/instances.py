"""One instance in detail, for `show`, and lists of instances. Plain values that print as JSON."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sensorpool.admin import next_poke
from sensorpool.client import wait
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation.redaction import printable
from sensorpool.model.callbacks import shown
from sensorpool.model.identity import identify
from sensorpool.model.json_text import read_json
from sensorpool.model.states import State
from sensorpool.model.times import spell_time
from sensorpool.store import admission, callbacks, inspecting, listing, values
from sensorpool.store.codes import is_denied
from sensorpool.store.listing import Selection

SHOWN_MEMBERS = 20
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
        "xcom_value": _xcom_value(pool, row),
        "on_settled": _callback(pool, row),
        "group_id": row["group_id"],
        "hashcode": row["hashcode"],
        "shardcode": row["shardcode"],
        "backend": None,
        "members": 0,
        "shares_with": [],
        "last_poke_at": None,
        "last_outcome": None,
        "last_reason": None,
        "last_pokes": [],
        "traceback": None,
        "next_poke_at": None,
        "next_poke_because": None,
        "is_sparse": False,
        "quarantined": _quarantine_of(pool, row),
        "unreachable": unreachable,  # why Redis was not asked further
    }
    next_poke.add_last(pool, shown)
    group = database.read(inspecting.group, row["group_id"])
    if group is not None and row["state"] == State.SENSING:
        members = database.read(inspecting.others_of_group, row["group_id"], SHOWN_MEMBERS + 1)
        shown["backend"], shown["members"] = group["backend"] or row["op_classpath"], group["members"]
        shown["shares_with"] = [dict(member) for member in members if member["id"] != instance_id][:SHOWN_MEMBERS]
        dag_ids = None if of_others else [row["dag_id"]]
        next_poke.add_next(pool, shown, group, database.read(database.now), dag_ids)
    return shown


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
        for row in _read(pool, listing.instances, selection, most)
    ]


def count_instances(pool: PoolView, selection: Selection) -> int:
    """Return how many instances are wanted, on all pages."""
    return _read(pool, listing.count, selection) if _can_be(selection) else 0


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


def _xcom_value(pool: PoolView, row: Any) -> Any:
    """Return the XCom value of an instance, wherever it is kept."""
    text, value_id = row["xcom_value"], row["shared_value_id"]
    if value_id is not None:
        text = pool.database.read(values.read, [value_id]).get(value_id)
    return None if text is None else read_json(text, text)


def _callback(pool: PoolView, row: Any) -> str | None:
    """Describe the state of an instance's callbacks; None if it has none."""
    if row["on_settled"] is None:
        return None
    task = printable(shown(row["on_settled"], row["state"]))
    if not task:
        return f"none is sent for the state {row['state']}"
    if row["state"] == State.SENSING:
        return f"{task} is sent when it settles"
    waiting = pool.database.read(callbacks.find, row["id"])
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
    found = pool.database.read(admission.quarantined, [digest])
    if not found:
        return None
    why = f"since {spell_time(found[0]['since'])}: {found[0]['crashes']} crashes, the last time: {found[0]['reason']}"
    return f"{why}; `sensorpool release {id_of(digest)}` lets it out"
