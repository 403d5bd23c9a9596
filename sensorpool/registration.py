"""Register what was planned: upsert its group and insert the instance, in one transaction a thousand.

Every registration takes the next version of its group under the group row's lock, so that within a group the order of
versions is the order of commits. No result that was observed before an instance registered is ever applied to it: a
fact carries the version that was loaded before its poke began (`settle`).
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.due import SPREAD, step_at, whole_ticks
from sensorpool.errors import KeyConflict, Refused
from sensorpool.failpoint import failpoint
from sensorpool.flush import call_off_in
from sensorpool.identity import shardcode
from sensorpool.model import Flushed, Instance, Key, Milliseconds, Patience
from sensorpool.plan import Plan
from sensorpool.settings import Settings
from sensorpool.states import State
from sensorpool.store import registering
from sensorpool.store.database import Database

AT_ONCE = 1_000  # registrations in one transaction
_OPERATOR_LENGTH = 250


@dataclass(slots=True)
class Registered:
    """What a round of registrations did."""

    instances: list[Instance]
    opened: set[int]  # shardcodes of groups that are new
    superseded: list[Flushed]


def register(database: Database, plans: Sequence[Plan], settings: Settings) -> Registered:
    """Register plans, all of them or none, in one transaction.

    The same key, try and context gives the instance that is there. The same key and try with another context, or a
    lower try than one that is there, is refused. A higher try cancels the lower ones.

    :raises KeyConflict: and nothing of this is kept.
    :raises Unreachable: when the database does not answer; what is kept then is found again by its key.
    """
    _check_among_themselves(plans)
    return database.run(lambda connection: _register(database, connection, plans, settings))


def _register(database: Database, connection: Connection, plans: Sequence[Plan], settings: Settings) -> Registered:
    known, superseded = _look_up(connection, plans)
    instances: dict[Key, Instance] = {}
    fresh: list[Plan] = []
    by_key = {each.key: each for each in plans}
    for each in by_key.values():
        row = known.get(each.key)
        if row is None:
            fresh.append(each)
        else:
            instances[each.key] = _instance_of(row, each.key)
    failpoint("register.before")
    flushed = [call_off_in(database, connection, superseded)]
    opened: set[int] = set()
    if fresh:
        now = database.now(connection)
        joined = _join_groups(connection, fresh, settings, now)
        rows = [_instance_row(each, *joined[each.identity.digest][:2], settings, now) for each in fresh]
        for row in registering.add_instances(connection, rows):
            key = _key_of(row)
            is_new = joined[by_key[key].identity.digest][2]
            instances[key] = _instance_of(row, key, created=True, opened=is_new)
            if is_new:
                opened.add(row.shardcode)
        # under the locks now: a try that was registered at the same time is seen here
        _, late = _look_up(connection, plans)
        later = {instance_id: why for instance_id, why in late.items() if instance_id not in superseded}
        flushed.append(call_off_in(database, connection, later))
    failpoint("register.before_commit")
    return Registered([instances[each.key] for each in plans], opened, flushed)


def _look_up(connection: Connection, plans: Sequence[Plan]) -> tuple[dict[Key, Any], dict[int, str]]:
    """Find the tries of these task instances: those that are registered already, and lower ones to cancel.

    :raises KeyConflict: as `register` does.
    """
    named = {each.key.task: each for each in plans if not each.key.is_fresh}
    known: dict[Key, Any] = {}
    superseded: dict[int, str] = {}
    for row in registering.instances_of_tasks(connection, list(named)):
        key = _key_of(row)
        each = named[key.task]
        if key.try_number > each.key.try_number:
            raise KeyConflict(
                f"{spell(each.key)} comes too late: try {key.try_number} is registered already (instance {row.id})"
            )
        if key.try_number < each.key.try_number:
            if row.state == State.SENSING:
                superseded[row.id] = f"superseded by try {each.key.try_number}"
        elif (row.op_classpath, row.poke_context) != (each.identity.op_classpath, each.identity.poke_context):
            raise KeyConflict(
                f"{spell(each.key)} is registered already, waiting for something else (instance {row.id}): "
                "use another key or a higher try_number"
            )
        else:
            known[key] = row
    return known, superseded


def _join_groups(
    connection: Connection, plans: Sequence[Plan], settings: Settings, now: Milliseconds
) -> dict[bytes, tuple[int, int, bool]]:
    """Make or join the groups; return group id, version, and whether it is new, by digest."""
    counts = Counter(each.identity.digest for each in plans)
    rows: dict[bytes, dict[str, Any]] = {}
    for each in plans:
        identity = each.identity
        step, deadline, _ = _times(each.patience, settings, now)
        row = rows.get(identity.digest)
        if row is None:
            rows[identity.digest] = {
                "digest": identity.digest,
                "hashcode": identity.hashcode,
                "shardcode": shardcode(identity.hashcode, settings.shard_code_upper_limit),
                "version": counts[identity.digest],
                "members": counts[identity.digest],
                "op_classpath": identity.op_classpath,
                "poke_context": identity.poke_context,
                "poke_interval": step,
                "phase": identity.phase % SPREAD,
                "registered_at": now,
                "next_deadline": deadline,
            }
        else:
            row["poke_interval"] = min(row["poke_interval"], step)
            row["next_deadline"] = min(row["next_deadline"], deadline)
    in_order = sorted(rows.values(), key=lambda row: (row["hashcode"], row["digest"]))
    joined: dict[bytes, tuple[int, int, bool]] = {}
    for found in registering.join_groups(connection, in_order):
        digest = bytes(found.digest)
        if (found.op_classpath, found.poke_context) != (
            rows[digest]["op_classpath"],
            rows[digest]["poke_context"],
        ):
            raise Refused("two different contexts have one digest; they cannot share a group")
        joined[digest] = (found.id, found.version, found.version == counts[digest])
    return joined


def _instance_row(each: Plan, group_id: int, version: int, settings: Settings, now: Milliseconds) -> dict[str, Any]:
    step, deadline, timeout_at = _times(each.patience, settings, now)
    key, identity = each.key, each.identity
    return {
        "dag_id": key.dag_id,
        "task_id": key.task_id,
        "run_id": key.run_id,
        "map_index": key.map_index,
        "try_number": key.try_number,
        "operator": identity.op_classpath.rpartition(".")[2][:_OPERATOR_LENGTH],
        "op_classpath": identity.op_classpath,
        "poke_context": identity.poke_context,
        "group_id": group_id,
        "joined_version": version,
        "hashcode": identity.hashcode,
        "shardcode": shardcode(identity.hashcode, settings.shard_code_upper_limit),
        "external_id": each.external_id,
        "logical_date": each.logical_date,
        "state": State.SENSING,
        "execution_context": _spell_patience(each.patience),
        "poke_interval": step,
        "start_date": now,
        "timeout_at": timeout_at,
        "next_deadline": deadline,
        "on_settled": each.on_settled,
    }


@lru_cache(maxsize=1_000)
def _spell_patience(patience: Patience) -> str:
    return json.dumps({name: value for name, value in patience._asdict().items() if value not in (None, False)})


def _times(
    patience: Patience, settings: Settings, now: Milliseconds
) -> tuple[Milliseconds, Milliseconds, Milliseconds]:
    """Return first step, next deadline and timeout of a waiter."""
    limits = [patience.timeout] + ([patience.execution_timeout] if patience.execution_timeout is not None else [])
    timeout_at = deadline = now + round(min(limits) * 1000)
    base = patience.poke_interval
    if patience.exponential_backoff:
        most = None if patience.max_wait is None else round(patience.max_wait * 1000)
        _, grows_after = step_at(0, round(base * 1000), most)
        if grows_after is not None:
            deadline = min(deadline, now + grows_after)
    return whole_ticks(base, settings.tick_ms), deadline, timeout_at


def _key_of(row: Any) -> Key:
    return Key(row.dag_id, row.task_id, row.run_id, row.map_index, row.try_number)


def _instance_of(row: Any, key: Key, *, created: bool = False, opened: bool = False) -> Instance:
    return Instance(row.id, row.group_id, row.hashcode, row.shardcode, State(row.state), created, key, opened)


def spell(key: Key) -> str:
    """Spell a key for people."""
    mapped = f"[{key.map_index}]" if key.map_index >= 0 else ""
    return f"{key.dag_id}.{key.task_id}{mapped} of {key.run_id}, try {key.try_number}"


def _check_among_themselves(plans: Sequence[Plan]) -> None:
    """Refuse a batch that names a task instance twice with different tries or conditions."""
    seen: dict[tuple[str, str, str, int], Plan] = {}
    for each in plans:
        other = seen.setdefault(each.key.task, each)
        if other is not each and (other.key != each.key or other.identity != each.identity):
            raise KeyConflict(f"{spell(each.key)} stands in the same batch twice, waiting for different things")
