"""Which classes may be poked, and how: an exact allowlist, checked before anything is imported."""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any

from sensorpool import extensions
from sensorpool.errors import ClassRefused, Refused
from sensorpool.identity import canonical_classpath
from sensorpool.redaction import one_line

FIELDS = "poke_context_fields"  # AIP-17's word
ADAPTERS = "sensorpool.adapters"  # entry points: class path to a function that returns what is poked in its place


class Way(Enum):
    """How a class answers."""

    SYNC = "poke(context)"
    ASYNC = "async poke(context)"
    MANY = "poke_many(contexts)"


@dataclass(frozen=True, slots=True)
class SensorClass:
    """A class that may be poked."""

    op_classpath: str
    cls: Any
    way: Way
    declared: frozenset[str] | None = None  # its poke_context_fields: a context names no others

    def construct(self, poke_context: Mapping[str, Any]) -> Any:
        """Make the sensor of a context. A class that answers many at once is asked by context, without objects.

        :raises TypeError: when the context names what the class does not declare, or is no mapping.
        """
        if not isinstance(poke_context, Mapping):
            raise TypeError("its poke_context is no JSON object")
        if self.declared is not None and not self.declared.issuperset(poke_context):
            unknown = min(poke_context.keys() - self.declared)
            raise TypeError(f"its poke_context_fields do not name {unknown[:80]!r}")
        return poke_context if self.way is Way.MANY else self.cls(**poke_context)


class Classes:
    """The sensor classes of an allowlist, imported when they are first needed.

    :param sensors_enabled: canonical class paths; nothing else is ever imported.
    """

    def __init__(self, sensors_enabled: Collection[str]) -> None:
        self._enabled = frozenset(sensors_enabled)
        self._found: dict[str, SensorClass] = {}

    def allow(self, op_classpath: str) -> str:
        """Return the canonical spelling of a class path that is on the allowlist.

        :raises ClassRefused: when it is not.
        """
        classpath = canonical_classpath(op_classpath)
        if classpath not in self._enabled:
            raise ClassRefused(f"{classpath} is not enabled: add it to SENSORPOOL_SENSORS_ENABLED")
        return classpath

    def known(self, op_classpath: str) -> SensorClass | None:
        """Return a class that has been imported already."""
        return self._found.get(op_classpath)

    def find(self, op_classpath: str) -> SensorClass:
        """Return the class of a path.

        :raises ClassRefused: when it is not allowed, cannot be imported, or is no sensor class.
        """
        found = self._found.get(op_classpath)
        if found is None:
            found = self._found[op_classpath] = _load(self.allow(op_classpath))
        return found

    def try_out(self, op_classpath: str, poke_context: Mapping[str, Any]) -> None:
        """Construct a sensor once, so that a bad argument is refused where the user looks, not found out in the pool.

        :raises Refused: with what the class says against its arguments.
        """
        found = self.find(op_classpath)
        try:
            found.construct(poke_context)
        except (Exception, SystemExit) as error:
            raise Refused(f"{op_classpath} does not take this poke_context: {one_line(error)}") from None


def describe(sensor: object) -> tuple[str, dict[str, Any]]:
    """Return class path and poke_context of a sensor object.

    Its class names its constructor's arguments in ``poke_context_fields`` (AIP-17's word) or is a dataclass.

    :raises Refused: when neither is so.
    """
    cls = type(sensor)
    names = getattr(cls, FIELDS, None)
    if names is None and is_dataclass(sensor):
        names = [field.name for field in fields(sensor) if field.init]
    classpath = f"{cls.__module__}.{cls.__qualname__}"
    if names is None:
        raise Refused(
            f"{classpath} has no poke_context_fields: name its constructor's arguments there, "
            "or pass the class path and a poke_context"
        )
    return classpath, {name: getattr(sensor, name) for name in names}


def _load(classpath: str) -> SensorClass:
    module_name, _, name = classpath.rpartition(".")
    try:
        found = getattr(import_module(module_name), name, None)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # a module may raise anything while it is imported, SystemExit too
        raise ClassRefused(f"{classpath} cannot be imported: {one_line(error)}") from None
    if not inspect.isclass(found):
        raise ClassRefused(f"{module_name} has no class {name}")
    cls = found
    try:
        found = _adapted(found)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise ClassRefused(f"{classpath} cannot be poked here: {one_line(error)}") from None
    names = getattr(cls, FIELDS, None) if found is cls else None  # an adapter has fields of its own
    declared = None if names is None else frozenset(names)
    if callable(getattr(found, "poke_many", None)):
        return SensorClass(classpath, found, Way.MANY, declared)
    poke = getattr(found, "poke", None)
    if not callable(poke):
        raise ClassRefused(f"{classpath} is not a sensor: it has neither poke nor poke_many")
    return SensorClass(classpath, found, Way.ASYNC if inspect.iscoroutinefunction(poke) else Way.SYNC, declared)


def _adapted(cls: type) -> Any:
    """Return what is poked in the place of a class: itself, unless it or a base of it has an adapter."""
    adapters = extensions.named(ADAPTERS)
    for base in cls.__mro__:
        entry = adapters.get(f"{base.__module__}.{base.__qualname__}")
        if entry is not None:
            return entry.load()(cls)
    return cls
