"""The insertion of groups and instances on PostgreSQL: a batch in one statement.

The statement for one registration is constant, so that the server can keep its plan.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any
from zlib import crc32

from sqlalchemy import Connection

from sensorpool.model.values import Key, Milliseconds
from sensorpool.store import columns
from sensorpool.store.database import fetch, table_prefix
from sensorpool.store.engine import IDLE_LIMIT_MS, LOCK_WAIT_MS
from sensorpool.store.rows import NewGroup, NewInstance, Try, column_types, is_later_try

_GROUP_TYPES, _INSTANCE_TYPES = column_types(NewGroup), column_types(NewInstance)
_KEY = slice(1, 1 + len(Key._fields))  # in a NewInstance
_KEY_TYPES = {name: _INSTANCE_TYPES[name] for name in Key._fields}

# A process that freezes in its transaction holds its locks for at most IDLE_LIMIT_MS, and a wait for a lock takes at
# most LOCK_WAIT_MS. Both limits hold from the first lock on, and need no statement of their own. The look for other
# tries comes after, and reads the index, whatever the size of the table was when it was planned.
_BOUNDS = ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in (
        ("lock_timeout", LOCK_WAIT_MS),
        ("idle_in_transaction_session_timeout", IDLE_LIMIT_MS),
        ("enable_seqscan", "off"),
    )
)
_MADE = "id, group_id, joined_version"
_JOIN = """
WITH bounded AS MATERIALIZED (SELECT {bounds}),
{locked}
clock AS (
    SELECT coalesce(%(now)b::int8, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)) AS now FROM bounded
),
joined AS (
    INSERT INTO {prefix}poke_group AS g (
        digest, hashcode, shardcode, version, members, op_classpath, poke_context, poke_interval, phase,
        registered_at, next_deadline, family, backend, location, logical_date
    )
    SELECT digest, hashcode, shardcode, members, members, op_classpath, poke_context, poke_interval, phase,
           clock.now, clock.now + next_deadline, family, backend, location, logical_date
    FROM {groups}, clock {after_locked}
    WHERE NOT EXISTS (SELECT FROM {prefix}poke_quarantine q WHERE q.digest = new.digest)
    ON CONFLICT (digest) DO UPDATE SET
        version = g.version + excluded.version,
        members = g.members + excluded.members,
        poke_interval = least(g.poke_interval, excluded.poke_interval),
        next_deadline = least(g.next_deadline, excluded.next_deadline)
    WHERE g.op_classpath = excluded.op_classpath AND g.poke_context = excluded.poke_context
    RETURNING g.*
)
INSERT INTO {prefix}sensor_instance (
    dag_id, task_id, run_id, map_index, try_number, external_id, logical_date, operator, op_classpath, group_id,
    joined_version, hashcode, shardcode, state, poke_context, execution_context, poke_interval, start_date, timeout_at,
    next_deadline, on_settled
)
SELECT new.dag_id, new.task_id, new.run_id, new.map_index, new.try_number, new.external_id, new.logical_date,
       new.operator, joined.op_classpath, joined.id, joined.version, joined.hashcode, joined.shardcode, 'sensing',
       joined.poke_context, new.execution_context, new.step, clock.now, clock.now + new.timeout,
       clock.now + new.deadline, new.on_settled
FROM {instances} JOIN joined ON joined.digest = new.joined_digest, clock
WHERE NOT EXISTS (SELECT FROM {prefix}dag_over_quota o WHERE o.dag_id = new.dag_id)
RETURNING {returned}
"""

# Two tries of one task must not be registered at once, because neither would see the other. First tries, which are
# nearly all, share the lock: only another try waits for them, and they for it. The locks are few, so that a thousand
# tasks fit into PostgreSQL's table of locks. They are taken in order, before any row is locked.
_LOCKED_ONE = "locked AS MATERIALIZED (SELECT pg_advisory_xact_lock{shared}({space}, %(lock)b::int4) FROM bounded),"
_LOCKED_MANY = """
locked AS MATERIALIZED (
    SELECT count(held) FROM (
        SELECT CASE WHEN later THEN pg_advisory_xact_lock({space}, lock)::text
                    ELSE pg_advisory_xact_lock_shared({space}, lock)::text END AS held
        FROM bounded, unnest(%(locks)b::int4[], %(later)b::bool[]) AS wanted (lock, later)
        OFFSET 0
    ) AS each
),
"""
_LOCKS, _SPACE = 64, 0x73656E73

_OTHER_TRIES_OF_ONE = """
SELECT try_number, id, state FROM {prefix}sensor_instance
WHERE dag_id = %(k0)b::text AND task_id = %(k1)b::text AND run_id = %(k2)b::text AND map_index = %(k3)b::int4
      AND try_number <> %(k4)b::int4
"""
# OFFSET 0 keeps the planner from a join, for which it would read the whole table while its statistics are old
_OTHER_TRIES = """
SELECT new.dag_id, new.task_id, new.run_id, new.map_index, other.try_number, other.id, other.state
FROM {keys}
CROSS JOIN LATERAL (
    SELECT s.try_number, s.id, s.state FROM {prefix}sensor_instance s
    WHERE s.dag_id = new.dag_id AND s.task_id = new.task_id AND s.run_id = new.run_id AND s.map_index = new.map_index
          AND s.try_number <> new.try_number
    OFFSET 0
) AS other
"""


def join(
    connection: Connection,
    groups: Sequence[NewGroup],
    instances: Sequence[NewInstance],
    chosen: Sequence[Key],
    now: Milliseconds | None,
) -> list[Any]:
    """See `registering.join`; return the key of each new instance, its id, its group, and its version of the group."""
    prefix = table_prefix(connection)
    if len(instances) == 1:
        return _join_one(connection, prefix, groups[0], instances[0], chosen, now)
    locked, values = "", dict[str, Any](now=now)
    if chosen:
        values["locks"], values["later"] = map(list, zip(*_locks(chosen), strict=True))
        locked = _LOCKED_MANY.format(space=_SPACE)
    new_groups, of_groups = columns.source("g", _GROUP_TYPES, groups)
    new_instances, of_instances = columns.source("i", _INSTANCE_TYPES, instances)
    returned = ", ".join((*Key._fields, _MADE))
    return fetch(
        connection, _join_text(prefix, new_groups, new_instances, locked, returned), values | of_groups | of_instances
    )


def _join_one(
    connection: Connection,
    prefix: str,
    group: NewGroup,
    instance: NewInstance,
    chosen: Sequence[Key],
    now: Milliseconds | None,
) -> list[Any]:
    values = {"now": now, **columns.values_of_one("g", group), **columns.values_of_one("i", instance)}
    locked = ""
    if chosen:
        ((values["lock"], later),) = _locks(chosen)
        locked = _LOCKED_ONE.format(shared="" if later else "_shared", space=_SPACE)
    own = tuple(instance)[_KEY]
    return [(*own, *row) for row in fetch(connection, _text_for_one(prefix, locked), values, planned_once=True)]


def other_tries(connection: Connection, keys: Sequence[Key]) -> list[Try]:
    """See `registering.other_tries`."""
    prefix = table_prefix(connection)
    if len(keys) == 1:
        text, values = _OTHER_TRIES_OF_ONE.format(prefix=prefix), columns.values_of_one("k", keys[0])
        found = fetch(connection, text, values, planned_once=True)
        return [Try(keys[0]._replace(try_number=number), *row) for number, *row in found]
    new, values = columns.source("k", _KEY_TYPES, keys)
    rows = fetch(connection, _OTHER_TRIES.format(prefix=prefix, keys=new), values)
    return [Try(Key(*row[:5]), *row[5:]) for row in rows]


@cache
def _text_for_one(prefix: str, locked: str) -> str:
    return _join_text(prefix, columns.of_one("g", _GROUP_TYPES), columns.of_one("i", _INSTANCE_TYPES), locked, _MADE)


def _join_text(prefix: str, groups: str, instances: str, locked: str, returned: str) -> str:
    return _JOIN.format(
        prefix=prefix,
        bounds=_BOUNDS,
        groups=groups,
        instances=instances,
        locked=locked,
        after_locked=", locked" if locked else "",
        returned=returned,
    )


def _locks(keys: Sequence[Key]) -> list[tuple[int, bool]]:
    """Return the locks of tasks in their order, each with whether it is exclusive."""
    locks: dict[int, bool] = {}
    for key in keys:
        lock = crc32("\0".join(map(str, key.task)).encode()) % _LOCKS
        locks[lock] = locks.get(lock, False) or is_later_try(key)
    return sorted(locks.items())
