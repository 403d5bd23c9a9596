"""Register what was planned: upsert its group and insert the instance, in one transaction a thousand.

Every registration takes the next version of its group under the group row's lock, so that within a group the order of
versions is the order of commits. No result that was observed before an instance registered is ever applied to it: a
fact carries the version that was loaded before its poke began (`settle`).
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
from sensorpool.store import barring, registering
from sensorpool.store.database import Database
from sensorpool.store.words import NewGroup, NewInstance

AT_ONCE = 1_000  # registrations in one transaction
_OPERATOR_LENGTH = 250


class _Barred(Exception):
    """Something of it is refused, unless it is there already."""


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
    attempts = itertools.count()

    def change(connection: Connection) -> Registered:
        # Nearly always nobody is there. If somebody is, their unique key says so, and the next attempt looks first.
        return _register(database, connection, plans, settings, look_first=next(attempts) > 0)

    try:
        return database.run(change)
    except _Barred as barred:
        refusal = str(barred)
    tasks = [each.key.task for each in plans if not each.key.is_fresh]
    if database.read(lambda connection: registering.instances_of_tasks(connection, tasks)):
        try:
            return database.run(change)  # who is there already is given back all the same: now we look
        except _Barred as barred:
            refusal = str(barred)
    raise Refused(refusal)


def _register(
    database: Database, connection: Connection, plans: Sequence[Plan], settings: Settings, *, look_first: bool
) -> Registered:
    by_key = {each.key: each for each in plans}
    known = _look_up(connection, by_key) if look_first else {}
    fresh = [each for key, each in by_key.items() if key not in known]
    opened: set[int] = set()
    failpoint("register.before")
    if fresh:
        joined = _join(database, connection, fresh, settings)
        opened = {instance.shardcode for instance in joined.values() if instance.opened}
        known |= joined
    # under the locks now: a try that was registered at the same time is seen here
    superseded = _supersede(connection, by_key)
    flushed = [call_off_in(database, connection, superseded)] if superseded else []
    failpoint("register.before_commit")
    return Registered([known[each.key] for each in plans], opened, flushed)


def _look_up(connection: Connection, by_key: Mapping[Key, Plan]) -> dict[Key, Instance]:
    """Find those that are registered already.

    :raises KeyConflict: when one of them waits for something else.
    """
    known: dict[Key, Instance] = {}
    for row in registering.instances_of_tasks(connection, [key.task for key in by_key if not key.is_fresh]):
        key = registering.key_of(row)
        each = by_key.get(key)
        if each is None:
            continue
        if (row.op_classpath, row.poke_context) != (each.identity.op_classpath, each.identity.poke_context):
            raise KeyConflict(
                f"{spell(key)} is registered already, waiting for something else (instance {row.id}): "
                "use another key or a higher try_number"
            )
        known[key] = Instance(row.id, row.group_id, row.hashcode, row.shardcode, State(row.state), False, key)
    return known


def _supersede(connection: Connection, by_key: Mapping[Key, Plan]) -> dict[int, str]:
    """Find the lower tries that are to be cancelled, and why, by id.

    :raises KeyConflict: when there is a higher one.
    """
    numbers = {key.task: key.try_number for key in by_key if not key.is_fresh}
    superseded: dict[int, str] = {}
    for other in registering.other_tries(connection, [key for key in by_key if not key.is_fresh]):
        ours = numbers[other.key.task]
        if other.key.try_number > ours:
            late = other.key._replace(try_number=ours)
            raise KeyConflict(
                f"{spell(late)} comes too late: try {other.key.try_number} is registered already (instance {other.id})"
            )
        if other.state == State.SENSING:
            superseded[other.id] = f"superseded by try {ours}"
    return superseded


def _join(database: Database, connection: Connection, plans: Sequence[Plan], settings: Settings) -> dict[Key, Instance]:
    """Make or join the groups, and insert the instances.

    :raises _Barred: when a condition is quarantined, a DAG over its quota, or a digest there for another context.
    """
    groups: dict[bytes, NewGroup] = {}
    instances: list[NewInstance] = []
    for each in plans:
        identity, patience = each.identity, each.patience
        step, deadline, timeout = _spans(patience, settings.tick_ms)
        group = groups.get(identity.digest)
        if group is None:
            groups[identity.digest] = NewGroup(
                identity.digest,
                identity.hashcode,
                shardcode(identity.hashcode, settings.shard_code_upper_limit),
                1,
                identity.op_classpath,
                identity.poke_context,
                step,
                identity.phase % SPREAD,
                deadline,
            )
        else:
            groups[identity.digest] = group._replace(
                members=group.members + 1,
                poke_interval=min(group.poke_interval, step),
                next_deadline=min(group.next_deadline, deadline),
            )
        instances.append(
            NewInstance(
                identity.digest,
                *each.key,
                each.external_id,
                each.logical_date,
                identity.op_classpath.rpartition(".")[2][:_OPERATOR_LENGTH],
                _spell_patience(patience),
                step,
                timeout,
                deadline,
                each.on_settled,
            )
        )
    in_order = sorted(groups.values(), key=lambda group: (group.hashcode, group.digest))
    joined = {row.key: row for row in registering.join(connection, in_order, instances, database.given_now(connection))}
    if len(joined) != len(plans):
        raise _Barred(_why_refused(connection, plans))
    found: dict[Key, Instance] = {}
    for each in plans:
        row, group = joined[each.key], groups[each.identity.digest]
        is_new = row.version == group.members
        found[each.key] = Instance(
            row.id, row.group_id, group.hashcode, group.shardcode, State.SENSING, True, each.key, is_new
        )
    return found


def _why_refused(connection: Connection, plans: Sequence[Plan]) -> str:
    barred = barring.barred(connection, [each.identity.digest for each in plans], {each.key.dag_id for each in plans})
    for each in plans:
        if (reason := barred.conditions.get(each.identity.digest)) is not None:
            return (
                f"{spell(each.key)} waits for something in quarantine ({each.identity.op_classpath}: {reason}); "
                "once it is mended, `sensorpool release` lets it out"
            )
        if (sensing := barred.dags.get(each.key.dag_id)) is not None:
            return (
                f"{each.key.dag_id} has too many sensors waiting ({sensing:,}): "
                "wait until some have settled, or raise SENSORPOOL_DAG_QUOTA"
            )
    return "two different contexts have one digest; they cannot share a group"


@lru_cache(maxsize=1_000)
def _spell_patience(patience: Patience) -> str:
    return json.dumps(
        {name: value for name, value in patience._asdict().items() if value is not None and value is not False}
    )


@lru_cache(maxsize=1_000)
def _spans(patience: Patience, tick_ms: Milliseconds) -> tuple[Milliseconds, Milliseconds, Milliseconds]:
    """Return first step of a waiter, and how long after its registration its next deadline and its timeout are."""
    limits = [patience.timeout] + ([patience.execution_timeout] if patience.execution_timeout is not None else [])
    timeout = deadline = round(min(limits) * 1000)
    base = patience.poke_interval
    if patience.exponential_backoff:
        most = None if patience.max_wait is None else round(patience.max_wait * 1000)
        _, grows_after = step_at(0, round(base * 1000), most)
        if grows_after is not None:
            deadline = min(deadline, grows_after)
    return whole_ticks(base, tick_ms), deadline, timeout


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
