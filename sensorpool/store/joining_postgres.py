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

# the types of `NewGroup` and of `NewInstance`
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
    FROM unnest({group_arrays}) AS new ({group_columns}), clock
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
FROM unnest({instance_arrays}) AS new ({instance_columns}) JOIN joined ON joined.digest = new.joined_digest, clock
RETURNING dag_id, task_id, run_id, map_index, try_number, id, group_id, joined_version
"""

# OFFSET 0 keeps the planner from joining: while its statistics are old it would read the whole table for it
_OTHER_TRIES = """
SELECT own.dag_id, own.task_id, own.run_id, own.map_index, other.try_number, other.id, other.state
FROM unnest(%(dag_id)b::text[], %(task_id)b::text[], %(run_id)b::text[], %(map_index)b::int4[], %(try_number)b::int4[])
     AS own (dag_id, task_id, run_id, map_index, try_number)
CROSS JOIN LATERAL (
    SELECT s.try_number, s.id, s.state FROM {prefix}sensor_instance s
    WHERE s.dag_id = own.dag_id AND s.task_id = own.task_id AND s.run_id = own.run_id AND s.map_index = own.map_index
          AND s.try_number <> own.try_number
    OFFSET 0
) AS other
"""


def join(
    connection: Connection, groups: Sequence[NewGroup], instances: Sequence[NewInstance], now: Milliseconds | None
) -> list[Joined]:
    """See `registering.join`."""
    values: dict[str, Any] = {"now": now}
    for prefix, rows in (("g", groups), ("i", instances)):
        values |= {f"{prefix}{place}": list(column) for place, column in enumerate(zip(*rows, strict=True))}
    found = fetch(connection, _join_text(table_prefix(connection)), values)
    return [Joined(Key(*row[:5]), *row[5:]) for row in found]


def other_tries(connection: Connection, keys: Sequence[Key]) -> list[Try]:
    """See `registering.other_tries`."""
    columns = dict(zip(Key._fields, zip(*keys, strict=True), strict=True))
    statement = _OTHER_TRIES.format(prefix=table_prefix(connection))
    rows = fetch(connection, statement, {name: list(values) for name, values in columns.items()})
    return [Try(Key(*row[:5]), *row[5:]) for row in rows]


@cache
def _join_text(prefix: str) -> str:
    def arrays(name: str, types: Sequence[str]) -> str:
        return ", ".join(f"%({name}{place})b::{kind}[]" for place, kind in enumerate(types))

    return _JOIN.format(
        prefix=prefix,
        group_arrays=arrays("g", _GROUP_TYPES),
        group_columns=", ".join(NewGroup._fields),
        instance_arrays=arrays("i", _INSTANCE_TYPES),
        instance_columns=", ".join(NewInstance._fields),
    )
