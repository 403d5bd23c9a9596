"""SQL that each database spells in its own way: the clock, and lists of ids."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Boolean, Dialect, bindparam, case, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType

POSTGRES_CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
# not unix_timestamp(), which uses the session's time zone: an hour comes twice when summer time ends
_MYSQL_CLOCK = "(timestampdiff(MICROSECOND, '1970-01-01 00:00:00', utc_timestamp(3)) DIV 1000)"
_CLOCKS = {
    "postgresql": POSTGRES_CLOCK,
    "mysql": _MYSQL_CLOCK,
    "mariadb": _MYSQL_CLOCK,
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS integer)",
}


def clock_question(dialect: str) -> str:
    """Return the statement that asks a database for its time in milliseconds since 1970 UTC.

    The time goes on inside of a transaction.
    """
    return f"SELECT {_CLOCKS[dialect]}"


def lower(first: Any, second: Any) -> Any:
    """The lower of two SQL numbers."""
    return case((first < second, first), else_=second)


count_rows = func.count()


class _Ids(UserDefinedType[Any]):
    """Integers as one text, like ``{1,2,3}``: an array costs five times as much to write."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT[]"

    def bind_processor(self, _: Dialect) -> Callable[[Any], str]:
        return lambda ids: f"{{{','.join(map(str, ids))}}}"


def among(column: Any) -> Any:
    """Whether a column of integers is among the parameter ``ids``."""
    return _among(column, bindparam("ids", type_=_Ids()))


class _among(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002
        """Return the element itself: with ``... IN (...) = 1`` MySQL and SQLite would read, and lock, all rows."""
        return self


@compiles(_among)
def _in_literals(element: Any, compiler: Any, **kw: Any) -> str:
    column, _ = element.clauses
    literals: Any = bindparam("ids", expanding=True, literal_execute=True)
    return str(compiler.process(column.in_(literals), **kw))


@compiles(_among, "postgresql")
def _any_of(element: Any, compiler: Any, **kw: Any) -> str:
    column, ids = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY (CAST({ids} AS BIGINT[]))"
