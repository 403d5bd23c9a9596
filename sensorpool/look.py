"""What an operator asks of a pool: status, health, one instance, a list. Plain values that print as JSON."""

from datetime import UTC, datetime
from typing import Any

from sensorpool import __version__, migrate
from sensorpool.due import next_slot_at
from sensorpool.errors import Refused, SensorpoolError, Unknown, Unreachable
from sensorpool.identity import identify
from sensorpool.model import Milliseconds
from sensorpool.pool import Pool
from sensorpool.range_state import RangeState
from sensorpool.record import last_poke
from sensorpool.redaction import printable
from sensorpool.rows import read_json
from sensorpool.states import State
from sensorpool.store import barring, looking

SHOWN_MEMBERS = 20
_MISSED_TICKS = 3  # after which a range counts as stopped


def status(pool: Pool) -> dict[str, Any]:
    """Return what waits, how much ended how, and how each shard range is doing.

    :raises Unreachable: when the database or Redis does not answer.
    """
    database = pool.database
    states = database.read(looking.count_by_state)
    groups, _ = database.read(looking.count_waiting)
    by_range = database.read(lambda connection: looking.count_groups(connection, pool.ranges))
    now, oldest = database.read(database.now), database.read(looking.oldest_unpublished)
    ranges = [
        {
            "shard_min": shard_range.shard_min,
            "shard_max": shard_range.shard_max,
            "holder": holder or _recent_holder(state, now, pool),
            "last_tick_at": spell_time(state.last or None),
            "lag_s": _lag(state, now, pool),
            "groups": count,
            "pokes": state.pokes,
            "left": len(state.left),
            "suspects": suspects,
        }
        for shard_range, count, (holder, state, suspects) in zip(
            pool.ranges, by_range, pool.leases.look(pool.ranges), strict=True
        )
    ]
    return {
        "sensing": states.get(State.SENSING, 0),
        "groups": groups,
        "states": {str(state): states.get(state, 0) for state in State},
        "quarantined": database.read(barring.count_quarantined),
        "dags_over_quota": database.read(barring.dags_over_quota),
        "unpublished_s": None if oldest is None else round((now - oldest) / 1000, 3),
        "ranges": ranges,
    }


def health(pool: Pool) -> list[str]:
    """Return what is wrong, a line each; nothing, if all is well."""
    problems: list[str] = []
    try:
        migrate.check(pool.database, __version__)
        now = pool.database.read(pool.database.now)
    except SensorpoolError as error:
        return [str(error)]
    try:
        looked = pool.leases.look(pool.ranges)
    except Unreachable as error:
        return [str(error)]
    stopped = []
    for shard_range, (holder, state, _) in zip(pool.ranges, looked, strict=True):
        age = (now - state.last) / 1000
        limit = _MISSED_TICKS * pool.settings.tick
        working = holder is not None and age < pool.settings.job_time_limit + limit
        if not state.last:
            stopped.append(f"range {shard_range} has no holder: no job has finished since Redis started")
        elif age > limit and not working:
            stopped.append(f"range {shard_range} has no holder: its last tick was {age:.0f} s ago")
    if len(stopped) == len(pool.ranges) > 1:
        latest = max(state.last for _, state, _ in looked)
        since = f"for {(now - latest) / 1000:.0f} s" if latest else "since Redis started"
        return [f"ticks have stopped: no range was looked at {since}; is beat running, and a worker?"]
    return problems + stopped


def show(pool: Pool, instance_id: int) -> dict[str, Any]:
    """Return all that is known of one instance.

    :raises Unknown: when there is no such instance.
    """
    database = pool.database
    row = instance(pool, instance_id)
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
        "group_id": row["group_id"],
        "hashcode": row["hashcode"],
        "shardcode": row["shardcode"],
        "members": 0,
        "shares_with": [],
        "last_poke_at": None,
        "last_outcome": None,
        "last_reason": None,
        "next_poke_at": None,
        "next_poke_because": None,
        "quarantined": _quarantine_of(pool, row),
    }
    _add_pokes(pool, shown)
    group = database.read(lambda connection: looking.group(connection, row["group_id"]))
    if group is not None and row["state"] == State.SENSING:
        members = database.read(lambda c: looking.others_of_group(c, row["group_id"], SHOWN_MEMBERS + 1))
        shown["members"] = group["members"]
        shown["shares_with"] = [dict(member) for member in members if member["id"] != instance_id][:SHOWN_MEMBERS]
        _add_next_poke(pool, shown, group, database.read(database.now))
    return shown


def instance(pool: Pool, instance_id: int) -> Any:
    """Return the whole row of an instance.

    :raises Unknown: when there is none.
    """
    possible = 0 < instance_id < 2**63  # no database can be asked for others
    row = pool.database.read(lambda connection: looking.instance(connection, instance_id)) if possible else None
    if row is None:
        raise Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")
    return row


def digest_of(row: Any) -> bytes:
    """Return the digest of what an instance waits for.

    :raises Refused: when somebody wrote its row over by hand.
    """
    return identify(row["op_classpath"], read_json(row["poke_context"])).digest


def list_instances(pool: Pool, *, state: State | None, dag_id: str | None, most: int) -> list[dict[str, Any]]:
    """Return instances, the newest first."""
    if dag_id is not None and printable(dag_id) != dag_id:
        return []  # nobody can be registered so, and not every database can be asked
    rows = pool.database.read(lambda c: looking.instances(c, state=state, dag_id=dag_id, most=most))
    return [
        {
            **{name: row[name] for name in ("id", "state", "dag_id", "task_id", "run_id", "map_index", "try_number")},
            "op_classpath": row["op_classpath"],
            "waiting_since": spell_time(row["start_date"]),
            "settled_at": spell_time(row["settled_at"]),
            "reason": row["reason"],
        }
        for row in rows
    ]


def spell_time(at: Milliseconds | None) -> str | None:
    """Spell a time for people: ISO 8601, UTC."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quarantine_of(pool: Pool, row: Any) -> str | None:
    """Say since when and why the condition of an instance is in quarantine, and how to let it out."""
    try:
        digest = digest_of(row)
    except Refused:
        return None  # nobody can have registered that
    found = pool.database.read(lambda connection: barring.quarantined(connection, [digest]))
    if not found:
        return None
    why = f"since {spell_time(found[0]['since'])}: {found[0]['crashes']} crashes, the last time: {found[0]['reason']}"
    return f"{why}; `sensorpool release {row['id']}` lets it out"


def _lag(state: RangeState, now: Milliseconds, pool: Pool) -> float | None:
    """Return by how many seconds a range is late: its last job's lag, or more if its next tick is overdue."""
    if not state.last:
        return None
    overdue = now - state.last - pool.settings.tick_ms
    return round(max(state.lag_ms, overdue, 0) / 1000, 3)


def _recent_holder(state: RangeState, now: Milliseconds, pool: Pool) -> str | None:
    """Return who had the lease last, if that was lately: between two jobs nobody holds it."""
    if not state.last or now - state.last > _MISSED_TICKS * pool.settings.tick_ms:
        return None
    return state.holder or None


def _add_pokes(pool: Pool, shown: dict[str, Any]) -> None:
    """Add the last poke, as far as Redis remembers it."""
    try:
        records = pool.leases.records(pool.range_of(shown["shardcode"]))
    except Unreachable as error:
        shown["last_outcome"] = f"not known: {error}"
        return
    poked = last_poke(records, shown["group_id"])
    if poked is not None:
        shown["last_poke_at"], shown["last_outcome"] = spell_time(poked.at), str(poked.outcome)
        shown["last_reason"] = poked.reason


def _add_next_poke(pool: Pool, shown: dict[str, Any], group: Any, now: Milliseconds) -> None:
    """Add when the group is due next, and why then."""
    at = next_slot_at(now, group["poke_interval"], group["phase"])
    because = f"every {group['poke_interval'] / 1000:g} s"
    if group["next_deadline"] is not None and now < group["next_deadline"] < at:
        at, because = group["next_deadline"], "a member's deadline comes: one poke before a timeout"
    if shown["last_poke_at"] is None:
        at, because = now, "it was not poked yet"
    try:
        why = pool.leases.why_suspect(pool.range_of(shown["shardcode"]), group["id"])
    except Unreachable:
        why = None
    if group["crashes"]:
        because += f"; poked apart: its poke took its process down {group['crashes']} times"
    elif why:
        because += f"; poked apart: {why}"
    shown["next_poke_at"], shown["next_poke_because"] = spell_time(at), because
