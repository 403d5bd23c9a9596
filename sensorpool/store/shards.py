"""Which groups lie in a range of shardcodes, in SQL."""

from typing import Any

from sqlalchemy import Boolean, Integer, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from sensorpool.store.schema import CELL_BITS
from sensorpool.store.schema import poke_group as g


def within(shard_min: Any, shard_max: Any) -> Any:
    """Whether a group's shardcode lies in ``shard_min <= s < shard_max``, so that an index answers it."""
    return _within(g.c.shardcode, _number(shard_min), _number(shard_max))


def _number(value: Any) -> Any:
    return literal(value, Integer) if isinstance(value, int) else value


class _within(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True


@compiles(_within)
def _by_shardcode(element: Any, compiler: Any, **kw: Any) -> str:
    code, low, high = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"({code} >= {low} AND {code} < {high})"


@compiles(_within, "postgresql")
def _by_cell(element: Any, compiler: Any, **kw: Any) -> str:
    """The index is of cells, each of several shardcodes (`due_postgres`)."""
    code, low, high = (compiler.process(clause, **kw) for clause in element.clauses)
    first, last = f"CAST({low} AS int) >> {CELL_BITS}", f"(CAST({high} AS int) - 1) >> {CELL_BITS}"
    return f"({code} >> {CELL_BITS} BETWEEN {first} AND {last} AND {code} >= {low} AND {code} < {high})"
