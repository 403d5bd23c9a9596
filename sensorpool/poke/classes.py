"""Which classes may be poked, and how: the allowlist is asked before anything is imported, and again of the class."""

import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from importlib import import_module, invalidate_caches
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

from sensorpool.config import extensions
from sensorpool.config.allowlist import Allowlist
from sensorpool.errors import ClassRefused, ClassUnavailable, Refused
from sensorpool.instrumentation import logs
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.backend import backend_named
from sensorpool.model.identity import canonical_classpath
from sensorpool.model.location import location_named
from sensorpool.model.words import nearest_class

FIELDS = "poke_context_fields"  # AIP-17's word
BACKEND_OF = "backend_of"  # a static or class method: takes a poke_context, and returns the name of its backend
LOCATION_OF = "location_of"  # likewise: the URL of what it waits for
ADAPTERS = "sensorpool.adapters"  # entry points: a class path, and a function that makes the class poked in its place
SHARED_CALLS = "sensorpool.shared_calls"  # entry points: a class path, and a function that returns its shared call
JOINS = ALL_OF, ANY_OF = "sensorpool.joins.AllOf", "sensorpool.joins.AnyOf"  # in each pool: they ask the pool itself
RETRY_AFTER = 15.0  # seconds until a process tries an unavailable class again; doubles with each failure
_LONGEST_RETRY = 300.0  # seconds
_REFUSALS = 1_000  # the most that are remembered: rows may name any number of class paths

log = logger(__name__)


class Way(Enum):
    """The way in which a class is poked."""

    SYNC = "poke(context)"
    ASYNC = "async poke(context)"
    MANY = "poke_many(contexts)"


@dataclass(frozen=True, slots=True)
class SensorClass:
    """A class that may be poked."""

    op_classpath: str
    cls: Any
    way: Way
    declared: frozenset[str] | None = None  # its poke_context_fields, the only names that a context may have
    names_backend: Callable[[dict[str, Any]], Any] | None = None  # its `backend_of`
    names_location: Callable[[dict[str, Any]], Any] | None = None  # its `location_of`
    shared: Any = None  # its `shared_call.SharedCall`

    def construct(self, poke_context: Mapping[str, Any]) -> Any:
        """Construct the sensor of a context; for a class with `poke_many`, return the context itself.

        :raises TypeError: when the context has a name that the class does not declare, or is no mapping.
        :raises Exception: whatever the constructor raises.
        """
        if not isinstance(poke_context, dict | Mapping):  # dict first: its check is quick
            raise TypeError("its poke_context is no JSON object")
        if self.declared is not None and not self.declared.issuperset(poke_context):
            unknown = min(poke_context.keys() - self.declared)
            names = ", ".join(sorted(self.declared)) or "none"
            raise TypeError(f"it has no argument {unknown[:80]!r}: its poke_context_fields name {names[:200]}")
        return poke_context if self.way is Way.MANY else self.cls(**poke_context)

    def backend_of(self, poke_context: Mapping[str, Any]) -> str | None:
        """Return the name that the class gives to the backend of a context; None: it gives none, or its code raises."""
        return _named(self.names_backend, backend_named, poke_context)

    def location_of(self, poke_context: Mapping[str, Any]) -> str | None:
        """Return the location that the class gives to a context; None: it gives none, or its code raises."""
        return _named(self.names_location, location_named, poke_context)


def _named(
    names: Callable[[dict[str, Any]], Any] | None,
    as_kept: Callable[[object], str | None],
    poke_context: Mapping[str, Any],
) -> str | None:
    """Return what a method of a class says of a context."""
    if names is None:
        return None
    try:
        return as_kept(names(dict(poke_context)))
    except (Exception, SystemExit):
        return None


class _Refusal(NamedTuple):
    """Why a class is not available, and when to try it again, by the monotonic clock."""

    why: str
    again_at: float
    wait: float


class Classes:
    """The sensor classes of an allowlist, each imported at its first use. Safe to share between threads.

    :param sensors_enabled: canonical class paths and patterns, or an `Allowlist`.
    :param retry_after: seconds until an unavailable class is tried again; doubles with each failure.
    """

    finds_alone = False  # whether no poke may go on while a child finds one

    def __init__(self, sensors_enabled: Iterable[str] | Allowlist, *, retry_after: float = 0.0) -> None:
        self._enabled = sensors_enabled if isinstance(sensors_enabled, Allowlist) else Allowlist(sensors_enabled)
        self._found: dict[str, SensorClass] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._notes: dict[str, _Refusal] = {}
        self._retry_after = retry_after

    def allow(self, op_classpath: str) -> str:
        """Return the canonical spelling of a class path that is on the allowlist.

        :raises ClassRefused: when it is no class path.
        :raises ClassUnavailable: when it is not listed.
        """
        classpath = canonical_classpath(op_classpath)
        if not self.is_listed(classpath):
            raise _not_enabled(
                classpath, self._enabled.why_not(classpath), nearest_class(classpath, self._enabled.named())
            )
        return classpath

    def is_listed(self, op_classpath: str) -> bool:
        """Whether a canonical class path is on the allowlist, or one that each pool has."""
        return op_classpath in self._enabled or op_classpath in JOINS

    def known(self, op_classpath: str) -> SensorClass | None:
        """Return a class if it has been imported already, otherwise None."""
        return self._found.get(op_classpath)

    def find(self, op_classpath: str) -> SensorClass:
        """Return the class of a path.

        :raises ClassRefused: when it is no class path.
        :raises ClassUnavailable: when it is not allowed, cannot be imported, or is no sensor class.
        """
        found = self._found.get(op_classpath)
        if found is not None:
            return found
        if (why := self.refusal(op_classpath)) is not None:
            raise ClassUnavailable(why)
        try:
            found = self._found[op_classpath] = _load(self.allow(op_classpath), self._enabled)
        except ClassUnavailable as error:
            self._remember(op_classpath, str(error))
            raise
        if self._refusals.pop(op_classpath, None) is not None and self._retry_after:
            log.info("a class can be poked here again", op_classpath=op_classpath)
        return found

    def is_due(self, _: str) -> bool:
        """Whether a child's main thread is to look again for a class that it has looked for."""
        return False

    def learn_async(self, op_classpath: str) -> None:
        """Poke a class on the event loop from now on: its ``poke`` returned a coroutine.

        A decorator around ``async def poke`` hides the coroutine function until the first call.
        """
        found = self._found.get(op_classpath)
        if found is not None and found.way is Way.SYNC:
            self._found[op_classpath] = replace(found, way=Way.ASYNC)

    def refusal(self, op_classpath: str) -> str | None:
        """Return why a class is not available; None if it may be available, or it is time to try it again."""
        refusal = self._refusals.get(op_classpath)
        if refusal is not None:
            return None if time.monotonic() >= refusal.again_at else refusal.why
        if not self.is_listed(op_classpath):
            try:
                self.allow(op_classpath)
            except ClassUnavailable as error:
                self._remember(op_classpath, str(error))
                return str(error)
            except ClassRefused:
                return None  # `find` raises the reason
        return None

    @property
    def refusals(self) -> dict[str, str]:
        """Why classes are not available: at their last import, or lately for one of their contexts."""
        now = time.monotonic()
        noted = {path: note.why for path, note in self._notes.copy().items() if now < note.again_at}
        return noted | {path: refusal.why for path, refusal in self._refusals.copy().items()}

    def note(self, op_classpath: str, why: str) -> None:
        """Note that a class is available but cannot be poked for a context; log it once in `_LONGEST_RETRY` seconds."""
        now, before = time.monotonic(), self._notes.get(op_classpath)
        if before is None or now >= before.again_at:
            log.warning("a group cannot be poked here; it is left to other workers", op_classpath=op_classpath, why=why)
            self._notes[op_classpath] = _Refusal(why, now + _LONGEST_RETRY, _LONGEST_RETRY)

    def _remember(self, op_classpath: str, why: str) -> None:
        before = self._refusals.get(op_classpath)
        wait = min(2 * before.wait, _LONGEST_RETRY) if before is not None else self._retry_after
        if self._retry_after and (before is None or before.why != why):
            log.warning("a class cannot be poked here; it is left to other workers", op_classpath=op_classpath, why=why)
        while before is None and len(self._refusals) >= _REFUSALS:
            self._refusals.pop(next(iter(self._refusals.copy())), None)
        self._refusals[op_classpath] = _Refusal(why, time.monotonic() + wait, wait)

    def try_out(self, op_classpath: str, poke_context: Mapping[str, Any]) -> None:
        """Construct a sensor once, so that the caller, and not the pool, finds out about a bad argument.

        :raises ClassRefused: when it is no class path.
        :raises ClassUnavailable: when the class is not allowed, cannot be imported, or is no sensor class.
        :raises Refused: when the class does not take the context; with the text of its exception.
        """
        sensor_class = self.find(op_classpath)
        try:
            sensor_class.construct(poke_context)
        except (Exception, SystemExit) as error:
            raise Refused(f"{op_classpath} does not take this poke_context: {one_line(error)}") from None


def _not_enabled(classpath: str, why: str, meant: str = "") -> ClassUnavailable:
    said = f"{classpath} is not enabled{meant}: add it to SENSORPOOL_SENSORS_ENABLED"
    return ClassUnavailable(f"{said} ({why})" if why else said)


def _load(classpath: str, enabled: Allowlist) -> SensorClass:
    module_name, _, name = classpath.rpartition(".")
    try:
        invalidate_caches()  # its file may be newer than the cached listing of its folder
        found = getattr(import_module(module_name), name, None)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # an import may raise anything, SystemExit too
        why = f"{classpath} cannot be imported: {one_line(error)}"
        raise ClassUnavailable(why + _mend(error, module_name)) from None
    finally:
        logs.restore()
    try:
        if not inspect.isclass(found):
            raise ClassUnavailable(f"{module_name} has no class {name}")
        if (reason := enabled.reason_against(classpath, found)) is not None:
            raise _not_enabled(classpath, reason)
        return _read(classpath, found)
    except (ClassUnavailable, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise ClassUnavailable(f"{classpath} cannot be poked here: {one_line(error)}") from None


def _mend(error: BaseException, module_name: str) -> str:
    """Return what makes a module importable, if it is the one that is not found."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None or not f"{module_name}.".startswith(f"{missing}."):
        return ""
    return "; install its package, or name its folder in PYTHONPATH, for the workers and for what registers it"


def _read(classpath: str, cls: type) -> SensorClass:
    """Make the `SensorClass` of a class, whose attributes may raise anything."""
    found = _adapted(cls)
    names = getattr(cls, FIELDS, None) if found is cls else None  # an adapter has fields of its own
    declared = None if names is None else frozenset(names)
    names_backend, names_location = _method(found, BACKEND_OF), _method(found, LOCATION_OF)
    if callable(getattr(found, "poke_many", None)):
        return SensorClass(classpath, found, Way.MANY, declared, names_backend, names_location)
    poke = getattr(found, "poke", None)
    if not callable(poke):
        raise ClassUnavailable(f"{classpath} is not a sensor: it has neither poke nor poke_many")
    way = Way.ASYNC if inspect.iscoroutinefunction(poke) else Way.SYNC
    return SensorClass(classpath, found, way, declared, names_backend, names_location, _shared_call(cls, found))


def _method(cls: Any, name: str) -> Callable[[dict[str, Any]], Any] | None:
    found = getattr(cls, name, None)
    return found if callable(found) else None


def _shared_call(cls: type, found: Any) -> Any:
    """Return the shared call of a class itself: one of a base may not fit its poke. None: it has none."""
    classpath = f"{cls.__module__}.{cls.__qualname__}"
    if (entry_point := extensions.named(SHARED_CALLS).get(classpath)) is None:
        return None
    try:
        return entry_point.load()(cls, found)
    except Exception as error:  # as with another version of a provider: each group is poked by itself
        log.warning("a class has no call for many here", op_classpath=classpath, error=one_line(error))
        return None


def adapter_of(cls: type) -> EntryPoint | None:
    """Return the adapter of a class, or of the first of its bases that has one; it is not loaded yet."""
    adapters = extensions.named(ADAPTERS)
    paths = (f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__)
    return next((adapters[path] for path in paths if path in adapters), None)


def _adapted(cls: type) -> Any:
    """Return the class that is poked in the place of a class: itself, unless it has an adapter."""
    adapter = adapter_of(cls)
    return cls if adapter is None else adapter.load()(cls)
