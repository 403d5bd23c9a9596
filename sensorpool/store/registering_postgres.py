"""The insertion of groups and instances on PostgreSQL: one statement for any number of them.

The rows are a parameter, as JSON. So the text of the statement is constant, and the driver prepares it.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from zlib import crc32

from sqlalchemy import Connection

from sensorpool.model.values import Key, Milliseconds
from sensorpool.store.database import fetch, table_prefix
from sensorpool.store.engine import transaction_limits
from sensorpool.store.rows import NewGroup, NewInstance, is_later_try

_KEY = "dag_id text, task_id text, run_id text, map_index int4, try_number int4"
_JOIN = """
WITH bounded AS MATERIALIZED (SELECT {limits}),
locked AS MATERIALIZED (
    SELECT count(held) FROM (
        SELECT CASE WHEN later THEN pg_advisory_xact_lock({space}, lock)::text
                    ELSE pg_advisory_xact_lock_shared({space}, lock)::text END AS held
        FROM bounded, unnest(%(locks)s::int4[], %(later)s::bool[]) AS wanted (lock, later)
        OFFSET 0
    ) AS each
),
clock AS (
    SELECT coalesce(%(now)s::int8, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)) AS now FROM bounded
),
joined AS (
    INSERT INTO {prefix}poke_group AS g (
        digest, hashcode, shardcode, version, members, op_classpath, poke_context, poke_interval, phase,
        registered_at, next_deadline, family, backend, location, logical_date
    )
    SELECT digest, hashcode, shardcode, members, members, op_classpath, poke_context, poke_interval, phase,
           clock.now, clock.now + next_deadline, family, backend, location, logical_date
    FROM json_to_recordset(%(groups)s::json) AS new (
        digest bytea, hashcode int8, shardcode int4, members int4, op_classpath text, poke_context text,
        poke_interval int8, phase int8, next_deadline int8, family int8, backend text, location text, logical_date int8
    ), clock, locked
    WHERE NOT EXISTS (SELECT FROM {prefix}poke_quarantine q WHERE q.digest = new.digest)
    ON CONFLICT (digest) DO UPDATE SET
        version = g.version + excluded.version,
        members = g.members + excluded.members,
        poke_interval = least(g.poke_interval, excluded.poke_interval),
        next_deadline = least(g.next_deadline, excluded.next_deadline)
    WHERE g.op_classpath = excluded.op_classpath AND g.poke_context = excluded.poke_context
    RETURNING g.id, g.digest, g.op_classpath, g.poke_context, g.version, g.hashcode, g.shardcode
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
FROM json_to_recordset(%(instances)s::json) AS new (
    joined_digest bytea, {key}, external_id text, logical_date int8,
    operator text, execution_context text, step int8, timeout int8, deadline int8, on_settled text
) JOIN joined ON joined.digest = new.joined_digest, clock
RETURNING dag_id, task_id, run_id, map_index, try_number, id, group_id, joined_version
"""

# Two tries of one task must not be registered at once, because neither would see the other. First tries, which are
# nearly all, share the lock: only another try waits for them, and they for it. The locks are few, so that a thousand
# tasks fit into PostgreSQL's table of locks. They are taken in order, before any row is locked.
_LOCKS, _SPACE = 64, 0x73656E73

# OFFSET 0 keeps the planner from a join, for which it would read the whole table while its statistics are old
_TRIES = """
SELECT found.* FROM json_to_recordset(%(keys)s::json) AS new ({key})
CROSS JOIN LATERAL (
    SELECT s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.op_classpath, s.poke_context, s.group_id,
           s.hashcode, s.shardcode, s.state
    FROM {prefix}sensor_instance s
    WHERE s.dag_id = new.dag_id AND s.task_id = new.task_id AND s.run_id = new.run_id AND s.map_index = new.map_index
          AND (s.try_number <> new.try_number OR %(own)s::bool)
    OFFSET 0
) AS found
"""


def join(
    connection: Connection,
    groups: Sequence[NewGroup],
    instances: Sequence[NewInstance],
    chosen: Sequence[Key],
    now: Milliseconds | None,
) -> list[Any]:
    """See `registering.join`; return the key of each new instance, its id, its group, and its version of the group."""
    locks = _locks(chosen)
    values = {
        "groups": _as_json(groups),
        "instances": _as_json(instances),
        "locks": f"{{{','.join(str(lock) for lock, _ in locks)}}}",
        "later": f"{{{','.join(str(later) for _, later in locks)}}}",
        "now": now,
    }
    return fetch(connection, _join_text(table_prefix(connection)), values)


def tries(connection: Connection, keys: Iterable[Key], *, own: bool) -> list[Any]:
    """Return the rows of all tries of these task instances, in the order of `KnownTry`.

    :param own: whether the tries of the keys themselves are returned as well.
    """
    text = _TRIES.format(prefix=table_prefix(connection), key=_KEY)
    return fetch(connection, text, {"keys": _as_json(keys), "own": own})


def _as_json(rows: Iterable[Any]) -> str:
    return json.dumps([row._asdict() for row in rows], ensure_ascii=False, default=_bytes)


def _bytes(value: bytes) -> str:
    return f"\\x{value.hex()}"


@cache
def _join_text(prefix: str) -> str:
    return _JOIN.format(prefix=prefix, limits=transaction_limits(), space=_SPACE, key=_KEY)


def _locks(keys: Sequence[Key]) -> list[tuple[int, bool]]:
    """Return the locks of tasks in their order, each with whether it is exclusive."""
    locks: dict[int, bool] = {}
    for key in keys:
        lock = crc32("\0".join(map(str, key.task)).encode()) % _LOCKS
        locks[lock] = locks.get(lock, False) or is_later_try(key)
    return sorted(locks.items())
