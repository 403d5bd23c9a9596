"""JSON for the arguments of sensors: a value of another type than JSON's is tagged with its type, one of a few."""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath, PurePosixPath
from typing import Any, cast

from sensorpool.airflow.errors import NotPoolable

TYPE, VALUE = "__type__", "value"
CALLABLE = "callable"  # the tag of a function, which is given by its name
_DEEPEST = 24

NameOf = Callable[[Any, str], str]
"""Takes a callable, and its place in the arguments; raises NotPoolable for one that has no name of its own."""

_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "timedelta": lambda seconds: dt.timedelta(seconds=seconds),
    "path": PurePosixPath,
}


def encode(value: Any, where: str = "value", depth: int = 0, name_of: NameOf | None = None) -> Any:
    """Encode a value as JSON.

    :param where: the name of the value in the error's message.
    :param name_of: returns the name of a callable; without it callables are refused.
    :raises NotPoolable: for callables, objects, and all other values that have no tag.
    """
    if depth > _DEEPEST:
        raise NotPoolable(f"{where} is nested too deep")
    match value:
        case None | bool() | int() | float() | str():
            return value.value if isinstance(value, Enum) else value
        case dt.datetime():
            return {TYPE: "datetime", VALUE: value.isoformat()}
        case dt.date():
            return {TYPE: "date", VALUE: value.isoformat()}
        case dt.time():
            return {TYPE: "time", VALUE: value.isoformat()}
        case dt.timedelta():
            return {TYPE: "timedelta", VALUE: value.total_seconds()}
        case PurePath():
            return {TYPE: "path", VALUE: str(value)}
        case list():
            return [encode(item, where, depth + 1, name_of) for item in value]
        case tuple():
            return {TYPE: "tuple", VALUE: [encode(item, where, depth + 1, name_of) for item in value]}
        case set() | frozenset():
            items = [encode(item, where, depth + 1, name_of) for item in value]
            return {TYPE: "set", VALUE: sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
        case Mapping():
            if TYPE in value or not all(isinstance(name, str) for name in value):
                raise NotPoolable(f"{where} is a mapping that no JSON can hold")
            return {name: encode(item, where, depth + 1, name_of) for name, item in value.items()}
    if callable(value):
        if name_of is not None:
            return {TYPE: CALLABLE, VALUE: name_of(value, where)}
        raise NotPoolable(f"{where} is a callable")
    raise NotPoolable(f"{where} is a {type(value).__qualname__}, which no JSON can hold")


def decode(value: Any, find: Callable[[Any], Any] | None = None) -> Any:
    """Return the value that `encode` has encoded.

    :param find: returns the callable of a name; without it a callable is an unknown type.
    :raises ValueError: when the JSON names an unknown type.
    """
    if isinstance(value, list):
        return [decode(item, find) for item in value]
    if not isinstance(value, dict):
        return value
    if TYPE not in value:
        return {name: decode(item, find) for name, item in value.items()}
    tag, held = str(value[TYPE]), cast(Any, value.get(VALUE))
    if tag == CALLABLE and find is not None:
        return find(held)
    if tag == "tuple":
        return tuple(decode(item, find) for item in held)
    if tag == "set":
        return {decode(item, find) for item in held}
    reader = _READERS.get(tag)
    if reader is None:
        raise ValueError(f"there is no type {tag[:40]!r} in a poke_context")
    return reader(held)
