"""Rows on their way into a statement of PostgreSQL: a parameter for each column, whatever the number of rows.

VALUES of a thousand rows would take long to parse. Most columns of a batch have one value in all rows: it goes once. Of
the others, numbers and texts go as one text, for the driver takes five times as long over an array.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_BETWEEN = "\x1f"  # a control character, which keys and JSON have only spelt out


def source(name: str, types: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> tuple[str, dict[str, Any]]:
    """Return the source ``new`` of rows, in their order, and its values. Not all rows are equal, if there are several.

    :param name: begins the names of its parameters.
    :param types: the columns, each with its type.
    """
    values: dict[str, Any] = {}
    selected, arrays = [], {}
    for place, ((column, kind), cells) in enumerate(zip(types.items(), zip(*rows, strict=True), strict=True)):
        parameter = f"{name}{place}"
        if cells.count(cells[0]) == len(cells):
            values[parameter] = cells[0]
            selected.append(f"%({parameter})b::{kind} AS {column}")
        else:
            arrays[column], values[parameter] = _array(parameter, kind, cells)
            selected.append(column)
    each = f" FROM unnest({', '.join(arrays.values())}) AS each ({', '.join(arrays)})" if arrays else ""
    return f"(SELECT {', '.join(selected)}{each}) AS new", values


def of_one(name: str, types: Mapping[str, str]) -> str:
    """Return the source ``new`` of a single row."""
    row = (f"%({name}{place})b::{kind} AS {column}" for place, (column, kind) in enumerate(types.items()))
    return f"(SELECT {', '.join(row)}) AS new"


def values_of_one(name: str, row: Sequence[Any]) -> dict[str, Any]:
    """Return the values of a single row."""
    return {f"{name}{place}": value for place, value in enumerate(row)}


def _array(parameter: str, kind: str, cells: tuple[Any, ...]) -> tuple[str, Any]:
    """Return the array of a column, and the value of its parameter."""
    if kind == "text" and None not in cells:
        text = _BETWEEN.join(cells)
        if text.count(_BETWEEN) == len(cells) - 1:
            return f"string_to_array(%({parameter})s::text, E'\\x1f')", text
    if kind in {"int4", "int8"}:
        numbers = ",".join(["NULL" if cell is None else f"{int(cell)}" for cell in cells])
        return f"%({parameter})s::{kind}[]", f"{{{numbers}}}"
    return f"%({parameter})b::{kind}[]", list(cells)
