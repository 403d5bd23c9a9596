"""Register: canonicalise what is waited for, upsert its group and insert the instance, in one transaction a thousand.

Every registration takes the next version of its group under the group row's lock, so that within a group the order of
versions is the order of commits. No result that was observed before an instance registered is ever applied to it: a
fact carries the version that was loaded before its poke began (`settle`).
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.due import SPREAD, step_at, whole_ticks
from sensorpool.errors import KeyConflict, Refused
from sensorpool.failpoint import failpoint
from sensorpool.flush import call_off_in
from sensorpool.identity import Identity, identify, shardcode
from sensorpool.model import Flushed, Instance, Key, Milliseconds, Patience, Registration
from sensorpool.poke.classes import Classes, describe
from sensorpool.settings import Settings
from sensorpool.states import State
from sensorpool.store import registering
from sensorpool.store.database import Database

AT_ONCE = 1_000  # registrations in one transaction
LONGEST = 10 * 365 * 86_400.0  # seconds
_KEY_LENGTH = 250


@dataclass(frozen=True, slots=True)
class Plan:
    """A registration that was checked: nothing in it can be refused any more but for what the database holds."""

    identity: Identity
    key: Key
    patience: Patience
    on_settled: str | None


@dataclass(slots=True)
class Registered:
    """What a round of registrations did."""

    instances: list[Instance]
    opened: set[int]  # shardcodes of groups that are new
    superseded: list[Flushed]


_FIELDS = {field.name for field in fields(Registration)} - {"key", "sensor"}
_KEY_FIELDS = {field.name for field in fields(Key)}


def from_mapping(named: Mapping[str, Any]) -> Registration:
    """Read a registration from a mapping: ``sensor`` (or AIP-17's ``op_classpath``) and the arguments of `register`.

    :raises Refused: when it names something that there is not, or too little.
    """
    if not isinstance(named, Mapping):
        raise Refused("a registration is an object with op_classpath and poke_context")
    rest = dict(named)
    sensor = rest.pop("op_classpath", None) or rest.pop("sensor", None)
    if sensor is None:
        raise Refused("op_classpath is missing")
    if unknown := sorted(str(name) for name in rest.keys() - _FIELDS - _KEY_FIELDS):
        raise Refused(f"there is no field {unknown[0][:80]!r} in a registration")
    parts = {name: rest.pop(name) for name in _KEY_FIELDS & rest.keys() if rest[name] is not None}
    for name in _KEY_FIELDS:
        rest.pop(name, None)
    ids = {"dag_id", "task_id", "run_id"}
    if parts.keys() & ids and not ids <= parts.keys():
        raise Refused("a key needs dag_id, task_id and run_id: name all three, or none for a fresh one")
    key = Key(**parts) if ids <= parts.keys() else None
    return Registration(sensor=sensor, key=key, **{name: value for name, value in rest.items() if value is not None})


def plan(registration: Registration, settings: Settings, classes: Classes, *, try_out: bool = True) -> Plan:
    """Check a registration.

    :param try_out: import the class and construct it once, so that a bad argument is refused here.
    :raises Refused: with one line that says what is wrong.
    """
    if isinstance(registration.sensor, str):
        op_classpath, poke_context = registration.sensor, registration.poke_context
    else:
        op_classpath, poke_context = describe(registration.sensor)
        if registration.poke_context is not None:
            raise Refused("a sensor object brings its own poke_context: leave it out")
    op_classpath = classes.allow(op_classpath)
    identity = identify(op_classpath, {} if poke_context is None else poke_context)
    if try_out:
        classes.try_out(op_classpath, json.loads(identity.poke_context))
    key = _check_key(registration.key or Key.fresh(op_classpath.rpartition(".")[2]))
    return Plan(identity, key, _check_patience(registration, settings), _check_on_settled(registration, settings))


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
            instances[key] = _instance_of(row, key, created=True)
            if joined[by_key[key].identity.digest][2]:
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
        "operator": identity.op_classpath.rpartition(".")[2][:_KEY_LENGTH],
        "op_classpath": identity.op_classpath,
        "poke_context": identity.poke_context,
        "group_id": group_id,
        "joined_version": version,
        "hashcode": identity.hashcode,
        "shardcode": shardcode(identity.hashcode, settings.shard_code_upper_limit),
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
    return json.dumps({name: value for name, value in asdict(patience).items() if value not in (None, False)})


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


def _instance_of(row: Any, key: Key, *, created: bool = False) -> Instance:
    return Instance(row.id, row.group_id, row.hashcode, row.shardcode, State(row.state), created, key)


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


def _check_key(key: Key) -> Key:
    for name in ("dag_id", "task_id", "run_id"):
        value = getattr(key, name)
        if not isinstance(value, str) or not value:
            raise Refused(f"{name} must be a non-empty string")
        if len(value) > _KEY_LENGTH:
            raise Refused(f"{name} has {len(value)} characters; {_KEY_LENGTH} are allowed")
        if "\x00" in value:
            raise Refused(f"{name} has a NUL character")
        if value != value.strip():  # MySQL takes 'a' and 'a ' for the same
            raise Refused(f"{name} begins or ends with a space")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused(f"{name} has a lone surrogate, which UTF-8 cannot say") from None
    for name, least in (("map_index", -1), ("try_number", 0)):
        value = getattr(key, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise Refused(f"{name} must be a whole number of at least {least}")
    return key


def _check_patience(registration: Registration, settings: Settings) -> Patience:
    patience = Patience(
        poke_interval=_span("poke_interval", registration.poke_interval, settings.poke_interval),
        timeout=_span("timeout", registration.timeout, settings.timeout, zero=True),
        execution_timeout=_span("execution_timeout", registration.execution_timeout, None, zero=True),
        max_wait=_span("max_wait", registration.max_wait, None),
        **{
            name: _flag(name, getattr(registration, name))
            for name in ("soft_fail", "silent_fail", "never_fail", "exponential_backoff")
        },
    )
    if patience.soft_fail and patience.never_fail:  # Airflow's rule, and its words
        raise Refused("soft_fail and never_fail are mutually exclusive: set one of them")
    return patience


def _span(name: str, value: Any, default: float | None, *, zero: bool = False) -> Any:
    """Check a span of seconds; a timedelta is one too."""
    if value is None:
        return default
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"{name} must be a number of seconds")
    if value < 0 or (value == 0 and not zero) or value > LONGEST:
        raise Refused(f"{name} must be {'at least' if zero else 'more than'} 0 and at most ten years, in seconds")
    return float(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{name} must be true or false")
    return value


def _check_on_settled(registration: Registration, settings: Settings) -> str | None:
    signature = registration.on_settled
    if signature is None:
        return None
    if not isinstance(signature, Mapping) or not isinstance(signature.get("task"), str):
        raise Refused("on_settled must be a Celery signature, like my_task.s()")
    if signature["task"] not in settings.on_settled_tasks:
        raise Refused(f"on_settled: {signature['task'][:200]} is not allowed: add it to SENSORPOOL_ON_SETTLED_TASKS")
    try:
        text = json.dumps(dict(signature), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise Refused("on_settled: its arguments must be JSON") from None
    if len(text) > 64 * 1024:
        raise Refused("on_settled: the signature has more than 64 KB")
    return text
