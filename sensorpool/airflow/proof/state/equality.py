"""Whether two objects are the same to a poke."""

import datetime as dt
from collections import deque
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof.state import opaque_state

_DEEPEST = 4
_VALUES = (str, bytes, int, float, complex, dt.date, dt.timedelta, PurePath)


def difference(one: Mapping[str, Any], other: Mapping[str, Any], depth: int = _DEEPEST) -> str | None:
    """Return the name of an attribute that differs."""
    for name in one.keys() | other.keys():
        if name not in one or name not in other or not is_equal(one[name], other[name], depth):
            return name
    return None


def is_equal(one: Any, other: Any, depth: int = _DEEPEST) -> bool:
    """Whether a poke can see no difference. Python's equality is not enough: `Path("a") == PurePath("a")`.

    Objects are compared by their attributes, for a class's own equality may leave some out.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        held = opaque_state.read(one)
        if held is not None:
            return is_equal(held, opaque_state.read(other), depth) and _equal_attributes(one, other, depth)
        return _equal(one, other, depth) and _equal_attributes(one, other, depth)
    except Exception:  # an odd class, or `opaque_state.Unreadable`
        return False


def _equal(one: Any, other: Any, depth: int) -> bool:
    match one:
        case dict():
            return is_equal(list(one.items()), list(other.items()), depth)  # the order counts
        case list() | tuple() | deque():
            return len(one) == len(other) and all(map(is_equal, one, other, [depth] * len(one)))
        case set() | frozenset():
            theirs = {item: item for item in other}
            return bool(one == other) and all(is_equal(item, theirs[item], depth) for item in one)
        case dt.datetime() | dt.time():
            # equal offsets are not equal time zones: on another day the offsets may differ
            zones = [(moment.tzinfo is None, moment.tzname()) for moment in (one, other)]
            return bool(one == other) and zones[0] == zones[1]
    # an object without an equality of its own equals itself only; then its attributes decide
    is_opaque = isinstance(one, _VALUES) or callable(one) or operators.object_attributes(one) is None
    return not is_opaque or bool(one == other)


def _equal_attributes(one: Any, other: Any, depth: int) -> bool:
    if isinstance(one, PurePath | dt.date | dt.time):  # these cache what they have computed
        return True
    ours, theirs = operators.object_attributes(one), operators.object_attributes(other)
    if not ours or not theirs:
        return not ours and not theirs
    return depth > 0 and difference(ours, theirs, depth - 1) is None
