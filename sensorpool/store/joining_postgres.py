"""Groups and instances come, on PostgreSQL: all of a batch in one statement, one binary array a column.

A constant statement, where VALUES of a thousand rows would be parsed anew each time; as text an array costs three times
as much to write, and with SQLAlchemy's rows for what comes back as much again.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.model import Key, Milliseconds
from sensorpool.store.database import fetch, table_prefix
from sensorpool.store.words import Joined, NewGroup, NewInstance, Try

# the types of `NewGroup`, `NewInstance` and `Key`
_KEY_TYPES = ("text", "text", "text", "int4", "int4")
_GROUP_TYPES = ("bytea", "int8", "int4", "int4", "text", "text", "int8", "int8", "int8")
_INSTANCE_TYPES = (
    *("bytea", "text", "text", "text", "int4", "int4", "text", "int8", "text", "text"),
    *("int8", "int8", "int8", "text"),
)

_JOIN = """
WITH clock AS (
    SELECT coalesce(%(now)b::int8, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)) AS now
),
joined AS (
    INSERT INTO {prefix}poke_group AS g (
        digest, hashcode, shardcode, version, members, op_classpath, poke_context, poke_interval, phase,
        registered_at, next_deadline
    )
    SELECT digest, hashcode, shardcode, members, members, op_classpath, poke_context, poke_interval, phase,
           clock.now, clock.now + next_deadline
    FROM {groups}, clock
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
RETURNING dag_id, task_id, run_id, map_index, try_number, id, group_id, joined_version
"""

# OFFSET 0 keeps the planner from joining: while its statistics are old it would read the whole table for it
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
    connection: Connection, groups: Sequence[NewGroup], instances: Sequence[NewInstance], now: Milliseconds | None
) -> list[Joined]:
    """See `registering.join`."""
    alone = len(instances) == 1
    values = {"now": now, **_values("g", groups, alone), **_values("i", instances, alone)}
    rows = fetch(connection, _join_text(table_prefix(connection), alone), values)
    return [Joined(Key(*row[:5]), *row[5:]) for row in rows]


def other_tries(connection: Connection, keys: Sequence[Key]) -> list[Try]:
    """See `registering.other_tries`."""
    alone = len(keys) == 1
    rows = fetch(connection, _other_tries_text(table_prefix(connection), alone), _values("k", keys, alone))
    return [Try(Key(*row[:5]), *row[5:]) for row in rows]


@cache
def _join_text(prefix: str, alone: bool) -> str:
    groups = _source("g", NewGroup._fields, _GROUP_TYPES, alone)
    instances = _source("i", NewInstance._fields, _INSTANCE_TYPES, alone)
    return _JOIN.format(prefix=prefix, groups=groups, instances=instances)


@cache
def _other_tries_text(prefix: str, alone: bool) -> str:
    return _OTHER_TRIES.format(prefix=prefix, keys=_source("k", Key._fields, _KEY_TYPES, alone))


def _source(name: str, columns: Sequence[str], types: Sequence[str], alone: bool) -> str:
    """Return rows to select from: a row alone, which is by far the most frequent, as it is; others as arrays."""
    if alone:
        row = (f"%({name}{place})b::{kind} AS {columns[place]}" for place, kind in enumerate(types))
        return f"(SELECT {', '.join(row)}) AS new"
    arrays = ", ".join(f"%({name}{place})b::{kind}[]" for place, kind in enumerate(types))
    return f"unnest({arrays}) AS new ({', '.join(columns)})"


def _values(name: str, rows: Sequence[tuple[Any, ...]], alone: bool) -> dict[str, Any]:
    columns = rows[0] if alone else map(list, zip(*rows, strict=True))
    return {f"{name}{place}": column for place, column in enumerate(columns)}
