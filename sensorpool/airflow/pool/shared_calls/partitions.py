"""What the names of partitions have in common, in Hive and in Glue."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_]+")
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+")  # a value that no catalog spells in another way
_EQUALITY = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*""")
_AND = re.compile(r"and\b", re.IGNORECASE)

Spec = tuple[tuple[str, str], ...]
"""Keys in lower case, each with its value, in the order in which they were named."""


Table = tuple[str, str]
"""Its database, and its name."""


def table_of(database: Any, table: Any) -> Table | None:
    """Return the table that two arguments name, of which the second may name the database too; None: it is unclear."""
    database = database or "default"
    if not isinstance(table, str) or not isinstance(database, str) or table.count(".") > 1:
        return None
    if "." in table:
        database, _, table = table.partition(".")
    return database, table


def by_expression(database: Any, table: Any, expression: Any) -> tuple[Table, Spec] | None:
    """Return the table and the partition that three arguments name; None: they do not plainly do so."""
    where = table_of(database, table)
    spec = of_expression(expression) if isinstance(expression, str) else None
    return None if where is None or spec is None else (where, spec)


def of_name(name: str) -> Spec | None:
    """Read ``ds=2026-01-01/hour=7``; None: not plainly such a name."""
    parts = [part.partition("=") for part in name.split("/")]
    if not all(equals and _NAME.fullmatch(key) and _VALUE.fullmatch(value) for key, equals, value in parts):
        return None
    return tuple((key.lower(), value) for key, _, value in parts)


def of_expression(expression: str) -> Spec | None:
    """Read ``ds='2026-01-01' AND hour='7'``; None: the expression says something else."""
    found: dict[str, str] = {}
    place = 0
    while (part := _EQUALITY.match(expression, place)) is not None:
        key, value = part[1].lower(), part[2] if part[2] is not None else part[3]
        if key in found or not _VALUE.fullmatch(value):
            return None
        found[key], place = value, part.end()
        if place == len(expression):
            return tuple(found.items())
        if (more := _AND.match(expression, place)) is None:
            return None
        place = more.end()
    return None


def values_of(spec: Spec, keys: Sequence[str]) -> tuple[str, ...] | None:
    """Return the values of a partition in the order of its table's keys; None: it does not name just these keys."""
    named: Mapping[str, str] = dict(spec)
    wanted = [key.lower() for key in keys]
    if len(named) != len(spec) or named.keys() != set(wanted) or len(wanted) != len(spec):
        return None
    return tuple(named[key] for key in wanted)
