"""The question of a load on PostgreSQL where the table is large: it reads the groups that are due, and no others.

Of the groups with one interval, those are due whose phase, modulo the interval, lies between two numbers. So an index
answers, once for each interval and each of a range's cells; a cell is 128 shardcodes. Two more indexes of cells answer
which groups are new, and whose deadline has come. Among few groups, to look at all is as cheap.
"""

import time
from functools import cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.store.database import fetch, table_prefix
from sensorpool.store.schema import CELL_BITS, SLOT

LARGE = 30_000  # groups in the table; with fewer, to look at all of them costs less
LATEST = 60_000  # milliseconds since the last load of a range; after a longer time most of its groups may be due
_MOST_CELLS = 128  # in one statement: with many more, PostgreSQL would compile its plan (`jit_above_cost`)
_LOOK_EVERY = 60.0  # seconds between two looks at the size of the table
_IS_LARGE, _LOOKED_AT = "sensorpool_is_large", "sensorpool_looked_at"  # in the notes of SQLAlchemy's pool

# The cells of the range, and each interval that the groups of a cell have.
_STEPS = """
WITH RECURSIVE cells AS (
    SELECT generate_series(%(first_cell)s::int4, %(last_cell)s::int4) AS cell
),
steps AS (
    SELECT cell,
           (SELECT min(g.poke_interval) FROM {prefix}poke_group g
            WHERE g.shardcode >> {bits} = cell AND g.poke_interval > 0) AS step
    FROM cells
    UNION ALL
    SELECT cell,
           (SELECT min(g.poke_interval) FROM {prefix}poke_group g
            WHERE g.shardcode >> {bits} = cell AND g.poke_interval > steps.step)
    FROM steps WHERE step IS NOT NULL
)
"""
# Due since the last load, where that is less than a step ago, with p = phase % step, a = last % step, b = now % step:
# for a <= b the groups of step - b <= p < step - a; for a > b those of p < step - a, and those of step - b <= p.
# A group with the interval 0 was edited; it is due when it is new, or its deadline has come.
# OFFSET 0 keeps the planner from a join, for which it could read the whole table.
_DUE = """
{steps}
SELECT due.id, due.version, due.hashcode
FROM steps
CROSS JOIN LATERAL (
    SELECT %(last)s::int8 %% step AS a, %(now)s::int8 %% step AS b, %(now)s::int8 - %(last)s::int8 >= step AS are_all
) AS t
CROSS JOIN LATERAL (VALUES
    (CASE WHEN are_all OR a > b THEN 0 ELSE step - b END, CASE WHEN are_all THEN step ELSE step - a END),
    (CASE WHEN a > b AND NOT are_all THEN step - b END, step)
) AS part (start, stop)
CROSS JOIN LATERAL (
    SELECT g.id, g.version, g.hashcode FROM {prefix}poke_group g
    WHERE g.shardcode >> {bits} = cell AND g.poke_interval = step
          AND {slot} >= start AND {slot} < stop AND g.shardcode >= %(low)s::int4 AND g.shardcode < %(high)s::int4
    OFFSET 0
) AS due
WHERE step IS NOT NULL
UNION ALL
SELECT due.id, due.version, due.hashcode
FROM cells
CROSS JOIN LATERAL (
    SELECT g.id, g.version, g.hashcode FROM {prefix}poke_group g
    WHERE g.shardcode >> {bits} = cell AND g.registered_at > %(after)s::int8
          AND g.shardcode >= %(low)s::int4 AND g.shardcode < %(high)s::int4 AND {begins_none}
    OFFSET 0
) AS due
UNION ALL
SELECT due.id, due.version, due.hashcode
FROM cells
CROSS JOIN LATERAL (
    SELECT g.id, g.version, g.hashcode FROM {prefix}poke_group g
    WHERE g.shardcode >> {bits} = cell AND g.next_deadline > %(last)s::int8 AND g.next_deadline <= %(now)s::int8
          AND g.registered_at <= %(after)s::int8
          AND g.shardcode >= %(low)s::int4 AND g.shardcode < %(high)s::int4 AND {begins_none}
    OFFSET 0
) AS due
"""
# no period of the group has begun, so the first part has not found it
_BEGINS_NONE = (
    "(%(now)s::int8 + phase) / nullif(poke_interval, 0) "
    "IS NOT DISTINCT FROM (%(last)s::int8 + phase) / nullif(poke_interval, 0)"
)


def answers(connection: Connection, shard_range: ShardRange, last: Milliseconds, now: Milliseconds) -> bool:
    """Whether `due_groups` costs less than a look at all groups of the range.

    :param last: the last load of the range.
    """
    if connection.dialect.name != "postgresql" or now - last > LATEST:
        return False
    if _last_cell(shard_range) - _first_cell(shard_range) >= _MOST_CELLS:
        return False
    notes = connection.info
    here = time.monotonic()
    if here - notes.get(_LOOKED_AT, -_LOOK_EVERY) >= _LOOK_EVERY:
        notes[_LOOKED_AT], notes[_IS_LARGE] = here, _size(connection) >= LARGE
    return bool(notes[_IS_LARGE])


def due_groups(
    connection: Connection,
    shard_range: ShardRange,
    *,
    last: Milliseconds,
    now: Milliseconds,
    commit_overlap: Milliseconds,
) -> list[Any]:
    """Return the due groups of a range. The rule is `sensorpool.model.due.is_due`."""
    values = {
        "first_cell": _first_cell(shard_range),
        "last_cell": _last_cell(shard_range),
        "low": shard_range.shard_min,
        "high": shard_range.shard_max,
        "now": now,
        "last": last,
        "after": last - commit_overlap,
    }
    # planned each time: how much is new shows in the plan
    return fetch(connection, _text(table_prefix(connection)), values)


def _size(connection: Connection) -> float:
    """Return how many rows the table has by PostgreSQL's statistics; below 0: it does not know."""
    question = "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%(name)s)"
    return float(connection.exec_driver_sql(question, {"name": f"{table_prefix(connection)}poke_group"}).scalar() or 0)


@cache
def _text(prefix: str) -> str:
    steps = _STEPS.format(prefix=prefix, bits=CELL_BITS)
    return _DUE.format(steps=steps, prefix=prefix, bits=CELL_BITS, slot=SLOT, begins_none=_BEGINS_NONE)


def _first_cell(shard_range: ShardRange) -> int:
    return shard_range.shard_min >> CELL_BITS


def _last_cell(shard_range: ShardRange) -> int:
    return shard_range.shard_max - 1 >> CELL_BITS
