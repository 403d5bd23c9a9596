"""Class path and poke_context of a sensor object that is registered."""

import inspect
from collections.abc import Collection, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import printable
from sensorpool.poke.classes import FIELDS

_NO_SENSORS = (type(None), bool, int, float, complex, bytes, list, tuple, Mapping, Set)


def describe(sensor: object) -> tuple[str, dict[str, Any]]:
    """Return class path and poke_context of a sensor object.

    Its class must name its constructor's arguments in ``poke_context_fields`` (AIP-17's word) or be a dataclass.

    :raises Refused: when it does neither, as a function or a number; or the workers cannot import its class by a name.
    """
    if inspect.isfunction(sensor):
        raise Refused(f"{sensor.__module__}.{sensor.__qualname__} is a function: put @sensorpool.sensor before it")
    cls = type(sensor)
    classpath = path_of(cls)
    names = getattr(cls, FIELDS, None)
    if names is None and is_dataclass(sensor):
        names = [field.name for field in fields(sensor) if field.init]
    if names is None and isinstance(sensor, _NO_SENSORS):
        shown = f"a {cls.__name__}" if isinstance(sensor, Collection) else printable(repr(sensor))[:80]
        raise Refused(f"a sensor is a class path, a class, an object of one or a pathlib.Path, not {shown}")
    if names is None:
        raise Refused(
            f"{classpath} has no poke_context_fields: name its constructor's arguments there, "
            "or pass the class path and a poke_context"
        )
    return classpath, {name: getattr(sensor, name) for name in names}


def path_of(cls: type) -> str:
    """Return the class path of a class.

    :raises Refused: when the workers cannot import it by a name.
    """
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        where = "a function" if cls.__module__ != "__main__" else "the program that was started"
        raise Refused(
            f"{cls.__qualname__} is a class of {where}, and the workers cannot import it: define it in a module"
        )
    return f"{cls.__module__}.{cls.__qualname__}"
