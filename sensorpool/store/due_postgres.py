"""The questions of a load on PostgreSQL where the table is large: what is due, and when is the next group due?

They read the groups of the answer, and no others.
Of the groups with one interval, those are due whose phase, modulo the interval, lies between two numbers. So an index
answers, once for each interval and each of a range's cells; a cell is 128 shardcodes. Two more indexes of cells answer
which groups are new, and whose deadline has come. Among few groups, to look at all is as cheap.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
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

# The cells of the ranges, and each interval that the groups of a cell have.
_STEPS = """
WITH RECURSIVE cells AS (
    SELECT * FROM unnest(
        %(places)s::int4[], %(cells)s::int4[], %(lows)s::int4[], %(highs)s::int4[],
        %(lasts)s::int8[], %(afters)s::int8[]
    ) AS given (place, cell, low, high, last, after)
),
steps AS (
    SELECT cells.*,
           (SELECT min(g.poke_interval) FROM {prefix}poke_group g
            WHERE g.shardcode >> {bits} = cell AND g.poke_interval > 0) AS step
    FROM cells
    UNION ALL
    SELECT place, cell, low, high, last, after,
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
SELECT due.id, due.version, due.hashcode{place}
FROM steps
CROSS JOIN LATERAL (
    SELECT last %% step AS a, %(now)s::int8 %% step AS b, %(now)s::int8 - last >= step AS are_all
) AS t
CROSS JOIN LATERAL (VALUES
    (CASE WHEN are_all OR a > b THEN 0 ELSE step - b END, CASE WHEN are_all THEN step ELSE step - a END),
    (CASE WHEN a > b AND NOT are_all THEN step - b END, step)
) AS part (start, stop)
CROSS JOIN LATERAL (
    SELECT g.id, g.version, g.hashcode FROM {prefix}poke_group g
    WHERE g.shardcode >> {bits} = cell AND g.poke_interval = step
          AND {slot} >= start AND {slot} < stop AND g.shardcode >= low AND g.shardcode < high
    OFFSET 0
) AS due
WHERE step IS NOT NULL
UNION ALL
SELECT due.id, due.version, due.hashcode{place}
FROM cells
CROSS JOIN LATERAL (
    SELECT g.id, g.version, g.hashcode FROM {prefix}poke_group g
    WHERE g.shardcode >> {bits} = cell AND g.registered_at > %(after)s::int8 AND g.registered_at > after
          AND g.shardcode >= low AND g.shardcode < high AND {begins_none}
    OFFSET 0
) AS due
UNION ALL
SELECT due.id, due.version, due.hashcode{place}
FROM cells
CROSS JOIN LATERAL (
    SELECT g.id, g.version, g.hashcode FROM {prefix}poke_group g
    WHERE g.shardcode >> {bits} = cell AND g.next_deadline > %(last)s::int8 AND g.next_deadline <= %(now)s::int8
          AND g.next_deadline > last AND g.registered_at <= after
          AND g.shardcode >= low AND g.shardcode < high AND {begins_none}
    OFFSET 0
) AS due
"""
# With p and b as above, the next group of an interval has the greatest p below step - b, or else the greatest of all.
_NEXT = """
{steps}
SELECT min(span), min(deadline){place} FROM (
    SELECT place, step - b - p AS span, NULL::int8 AS deadline
    FROM steps
    CROSS JOIN LATERAL (SELECT %(now)s::int8 %% step AS b) AS t
    CROSS JOIN LATERAL (VALUES (0, step - b, 0), (step - b, step, step)) AS part (start, stop, later)
    CROSS JOIN LATERAL (
        SELECT {slot} - later AS p FROM {prefix}poke_group g
        WHERE g.shardcode >> {bits} = cell AND g.poke_interval = step
              AND {slot} >= start AND {slot} < stop AND g.shardcode >= low AND g.shardcode < high
        ORDER BY {slot} DESC LIMIT 1
    ) AS next
    WHERE step IS NOT NULL
    UNION ALL
    SELECT place, NULL, next.next_deadline
    FROM cells
    CROSS JOIN LATERAL (
        SELECT g.next_deadline FROM {prefix}poke_group g
        WHERE g.shardcode >> {bits} = cell AND g.next_deadline > %(now)s::int8
              AND g.shardcode >= low AND g.shardcode < high
        ORDER BY g.next_deadline LIMIT 1
    ) AS next
) AS found
GROUP BY place
"""
# no period of the group has begun, so the first part has not found it
_BEGINS_NONE = (
    "(%(now)s::int8 + phase) / nullif(poke_interval, 0) IS NOT DISTINCT FROM (last + phase) / nullif(poke_interval, 0)"
)


def answers(connection: Connection, lasts: Mapping[ShardRange, Milliseconds], now: Milliseconds) -> bool:
    """Whether `due_groups` costs less than a look at all groups of the ranges.

    :param lasts: the ranges, each with its last load.
    """
    if connection.dialect.name != "postgresql" or now - min(lasts.values()) > LATEST:
        return False
    if sum(len(_cells(each)) for each in lasts) > _MOST_CELLS:
        return False
    notes = connection.info
    here = time.monotonic()
    if here - notes.get(_LOOKED_AT, -_LOOK_EVERY) >= _LOOK_EVERY:
        notes[_LOOKED_AT], notes[_IS_LARGE] = here, _size(connection) >= LARGE
    return bool(notes[_IS_LARGE])


def due_groups(
    connection: Connection,
    lasts: Mapping[ShardRange, Milliseconds],
    *,
    now: Milliseconds,
    commit_overlap: Milliseconds,
) -> list[Any]:
    """Return the due groups of the ranges; with several ranges, each with the place of its own.

    The rule is `sensorpool.model.due.is_due`.
    """
    # the earliest of all ranges as numbers of their own: the planner then knows how little is new
    values = {"now": now, "last": min(lasts.values()), "after": min(lasts.values()) - commit_overlap}
    # planned each time: how much is new shows in the plan
    text = _text(_DUE, table_prefix(connection), len(lasts) > 1)
    return fetch(connection, text, values | _of_cells(lasts, commit_overlap))


def next_due(connection: Connection, ranges: Sequence[ShardRange], now: Milliseconds) -> list[Any]:
    """Return the span until the next group of each range is due, and its next deadline.

    With several ranges each has its place; a range without groups has no row.
    """
    text = _text(_NEXT, table_prefix(connection), len(ranges) > 1)
    return fetch(connection, text, {"now": now} | _of_cells(dict.fromkeys(ranges, now), 0))


def _of_cells(lasts: Mapping[ShardRange, Milliseconds], commit_overlap: Milliseconds) -> dict[str, Any]:
    """Return a row of `_STEPS` for each cell of the ranges: one array for each column."""
    spans = [
        (place, cell, each.shard_min, each.shard_max, last, last - commit_overlap)
        for place, (each, last) in enumerate(lasts.items())
        for cell in _cells(each)
    ]
    names = ("places", "cells", "lows", "highs", "lasts", "afters")
    return {name: _array(some) for name, some in zip(names, zip(*spans, strict=True), strict=True)}


def _size(connection: Connection) -> float:
    """Return how many rows the table has by PostgreSQL's statistics; below 0: it does not know."""
    question = "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%(name)s)"
    return float(connection.exec_driver_sql(question, {"name": f"{table_prefix(connection)}poke_group"}).scalar() or 0)


@cache
def _text(question: str, prefix: str, several: bool) -> str:
    """Return the text of a question about one range, or several, which have a place each."""
    steps = _STEPS.format(prefix=prefix, bits=CELL_BITS)
    place = ", place" if several else ""
    return question.format(steps=steps, prefix=prefix, bits=CELL_BITS, slot=SLOT, begins_none=_BEGINS_NONE, place=place)


def _cells(shard_range: ShardRange) -> range:
    return range(shard_range.shard_min >> CELL_BITS, (shard_range.shard_max - 1 >> CELL_BITS) + 1)


def _array(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"
