"""SQL that each database spells in its own way: the clock, the lower of two, whole quotients, and lists of ids."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Boolean, Dialect, bindparam, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement, GenericFunction
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
    """Return the statement that asks a database for its time (`clock_ms`), by the name of its dialect."""
    return f"SELECT {_CLOCKS[dialect]}"


class clock_ms(GenericFunction[int]):  # the name of an SQL function
    """The database's wall clock in milliseconds since 1970 UTC, also inside a transaction."""

    type = BigInteger()
    inherit_cache = True


@compiles(clock_ms)
def _clock(_: Any, compiler: Any, **__: Any) -> str:
    return _CLOCKS[compiler.dialect.name]


def lower(first: Any, second: Any) -> Any:
    """The lower of two SQL numbers; SQLite calls ``least`` ``min``."""
    return _lower(first, second)


class _lower(GenericFunction[int]):
    type = BigInteger()
    inherit_cache = True


@compiles(_lower)
def _least(element: Any, compiler: Any, **kw: Any) -> str:
    name = "min" if compiler.dialect.name == "sqlite" else "least"
    return f"{name}({compiler.process(element.clauses, **kw)})"


class whole_quotient(GenericFunction[int]):
    """Integer division of two non-negative SQL integers (MySQL's ``/`` rounds)."""

    type = BigInteger()
    inherit_cache = True


@compiles(whole_quotient)
def _quotient(element: Any, compiler: Any, **kw: Any) -> str:
    dividend, divisor = (compiler.process(clause, **kw) for clause in element.clauses)
    sign = "DIV" if compiler.dialect.name in {"mysql", "mariadb"} else "/"
    return f"(({dividend}) {sign} ({divisor}))"


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
