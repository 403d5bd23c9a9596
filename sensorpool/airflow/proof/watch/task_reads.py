"""Reads of what only a task has: its names, its DAG, its params, its timeouts. A sensor in the pool has no task.

Two tasks with equal arguments share a poke; a poke that looks for `<task_id>.done` must not be shared. Descriptors in
the sensor's class watch the attributes, so every way to read them is seen: a helper that knows its sensor, a property,
``getattr``. On the worker the first poke gets the values, and its reads are noted (`noting`). In the pool a sealed
sensor has none of these attributes, and a poke that reads one is handed back (`seal`).
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FrameType
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.errors import LookupUnavailable, OnlyOnWorker
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.state.held_code import NOTHING, StandIn, unwatched
from sensorpool.airflow.proof.watch import denials, hooks_in_pool
from sensorpool.airflow.proof.watch.company_hooks import HooksOfSensor
from sensorpool.airflow.proof.watch.denials import Denials
from sensorpool.errors import NotReady
from sensorpool.instrumentation.redaction import one_line

_SEALED = "_sensorpool_sealed"  # an attribute of sealed operators, which compares in their place
_HASHES = "BaseOperator.__hash__"
_COMPARES = (_HASHES, "BaseOperator.__eq__")
_MACHINERY = frozenset({"copy", "copyreg", "functools", "sensorpool"})  # code that copies objects, or caches results
_WAITING = (
    *("timeout", "execution_timeout", "poke_interval", "exponential_backoff", "max_wait", "reschedule"),
    *("soft_fail", "silent_fail", "never_fail", "do_xcom_push"),
)


@contextmanager
def noting(operator: Any, note: Callable[[str], object], but: frozenset[str] = frozenset()) -> Iterator[None]:
    """Note reads of the task's attributes of an operator and of its copies: its objects may hold a copy.

    :param but: the names of attributes that may be read.
    """
    cls, attributes = type(operator), vars(operator)
    places = {name: vars(cls).get(name, NOTHING) for name in _places(cls) if name not in but}
    noted = _Attributes(attributes, frozenset(places), note)
    with ExitStack() as stack:
        for name, was in places.items():
            setattr(cls, name, _Noted(cls, name, was, attributes.get("task_id"), note))
            stack.callback(*((delattr, cls, name) if was is NOTHING else (setattr, cls, name, was)))
        operator.__dict__ = noted
        stack.callback(_give_back, operator, attributes, noted)
        yield


def _give_back(operator: Any, attributes: dict[str, Any], noted: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(dict.items(noted))
    operator.__dict__ = attributes


def seal(operator: Any) -> Any:
    """Remove the task's attributes from an operator, and return it; a read of one then raises `OnlyOnWorker`.

    A class with AIP-17's ``poke_context_fields`` declares that its answer does not depend on them: it is not sealed.
    """
    cls: type = type(operator)
    attributes = vars(operator)
    if known_sensors.declares_fields(cls):
        return operator
    attributes[_SEALED] = _Seal({name: attributes.pop(name) for name in _sealed(cls) if name in attributes})
    return operator


@contextmanager
def raising_denials(
    operator: Any,
    known_missing: frozenset[str] | None = frozenset(),
    of_environment: frozenset[str] = frozenset(),
    hooks: HooksOfSensor | None = None,
    team: str | None = None,
) -> Iterator[list[str]]:
    """Raise at the end of a poke what it was denied: a poke that has caught the denial and went on must not answer.

    :param known_missing: digests of the Connections and Variables that the poke may do without (`missing_lookups`).
    :param of_environment: digests of those that the worker found in its environment.
    :param hooks: the companies' hooks that the sensor got; None if hooks do not matter.
    :param team: whose Connections and Variables the poke asks for; None: it is of no team.
    :yields: the reasons of the denials, those of the sealed operator and its copies in any thread included.
    :raises OnlyOnWorker: if something was denied.
    :raises InfraFailure: when a Connection or Variable cannot be looked up now.
    """
    with Denials(known_missing, of_environment, hooks, asker=denials.POKE, team=team) as denied_here:
        seal_of = vars(operator).get(_SEALED, _Seal())
        seal_of.denied = denied_here.denied
        try:
            yield denied_here.denied
        except LookupUnavailable as error:
            raise NotReady(str(error)) from None
        except Exception as error:
            if (name := denied_here.possibly_missing) is not None:  # the worker may have it
                why = f"its poke failed, and the pool does not find the {name}: {one_line(error)}"
                raise OnlyOnWorker(why) from error
            raise
        finally:
            seal_of.denied = None
            if hooks is not None and hooks.states and (reason := hooks_in_pool.reason_after(hooks)) is not None:
                denied_here.denied.append(reason)
            if denied_here.denied:
                raise OnlyOnWorker(denied_here.denied[0])
            if denied_here.unavailable is not None:
                raise NotReady(denied_here.unavailable)


class _Seal:
    """Compares in the place of a sealed operator, and holds the denials of its poke.

    :param hashed: the sealed attributes, for the operator's hash: its constructor may have put it into a dict.
    """

    def __init__(self, hashed: Mapping[str, Any] | None = None) -> None:
        self.hashed = hashed or {}
        self.denied: list[str] | None = None

    def __deepcopy__(self, _: Any) -> "_Seal":
        return self

    def __reduce__(self) -> Any:
        return _Seal, ()


@cache
def _sealed(cls: type) -> list[str]:
    """Put descriptors into a class that deny reads of a sealed operator; return the names of the attributes."""
    names = _places(cls)
    for name in names:
        setattr(cls, name, _Sealed(cls, name, vars(cls).get(name, NOTHING)))
    return names


def _places(cls: type) -> list[str]:
    """Return the names of the task's attributes that instances have, and that are no property of the class."""
    found = {name: operators.class_attribute(cls, name) for name in operators.task_attributes(cls)}
    return [name for name, value in found.items() if isinstance(value, _Sealed) or not hasattr(type(value), "__set__")]


def computed_setting(cls: type) -> str | None:
    """Return the name of a waiting setting that a class computes at each read: the pool reads it once."""
    for name in _WAITING:
        value = unwatched(operators.class_attribute(cls, name))
        airflows = operators.class_attribute(BaseSensorOperator, name)
        if value is not airflows and hasattr(type(value), "__get__"):
            return name
    return None


class _Attribute(StandIn):
    """A descriptor in a class, for an attribute of its instances."""

    __slots__ = ("_cls", "_name")

    def __init__(self, cls: type, name: str, was: object) -> None:
        super().__init__(was)
        self._cls = cls
        self._name = name

    def _of_class(self, operator: Any, owner: Any) -> Any:
        """Return the class's own attribute of this name.

        :raises AttributeError: when it has none.
        """
        if self.was is NOTHING:
            return getattr(super(self._cls, owner if operator is None else operator), self._name)
        bind = getattr(type(self.was), "__get__", None)
        return self.was if bind is None else bind(self.was, operator, owner)


class _Sealed(_Attribute):
    """Denies reads of an attribute of a sealed instance; other instances have the attribute."""

    __slots__ = ()

    def __get__(self, operator: Any, owner: Any = None) -> Any:
        attributes = {} if operator is None else vars(operator)
        if self._name in attributes:
            return attributes[self._name]
        seal_of = attributes.get(_SEALED)
        if seal_of is None:
            return self._of_class(operator, owner)
        if _is_comparison(sys._getframe(1), _HASHES):
            return seal_of.hashed[self._name] if self._name in seal_of.hashed else self._of_class(operator, owner)
        if _is_comparison(sys._getframe(1)):
            return seal_of  # a sealed operator is equal to itself alone
        why = f"its poke asks for its {self._name.lstrip('_')}, which only its task has"
        raise denials.deny(why, seal_of.denied)

    def __set__(self, operator: Any, value: Any) -> None:
        self._deny_change(operator)
        vars(operator)[self._name] = value

    def __delete__(self, operator: Any) -> None:
        self._deny_change(operator)
        if vars(operator).pop(self._name, NOTHING) is NOTHING:
            raise AttributeError(self._name)

    def _deny_change(self, operator: Any) -> None:
        if (seal_of := vars(operator).get(_SEALED)) is not None:
            why = f"its poke changes its {self._name.lstrip('_')}, by which its task waits"
            raise denials.deny(why, seal_of.denied)


class _Noted(_Attribute):
    """Notes reads of an attribute, and returns its value."""

    __slots__ = ("_note", "_task_id")

    def __init__(self, cls: type, name: str, was: object, task_id: Any, note: Callable[[str], object]) -> None:
        super().__init__(cls, name, was)
        self._task_id = task_id
        self._note = note

    def __get__(self, operator: Any, owner: Any = None) -> Any:
        attributes = {} if operator is None else vars(operator)
        if self._is_watched(attributes) and not _is_comparison(sys._getframe(1)):
            self._note(f"asks for its {self._name.lstrip('_')}, which only its task has")
        return attributes[self._name] if self._name in attributes else self._of_class(operator, owner)

    def __set__(self, operator: Any, value: Any) -> None:
        if self._is_watched(vars(operator)):
            self._note(f"changes its {self._name}, by which its task waits")
        vars(operator)[self._name] = value

    def __delete__(self, operator: Any) -> None:
        if self._is_watched(vars(operator)):
            self._note(f"changes its {self._name}, by which its task waits")
        if vars(operator).pop(self._name, NOTHING) is NOTHING:
            raise AttributeError(self._name)

    def _is_watched(self, attributes: dict[str, Any]) -> bool:
        return bool(attributes.get("task_id", NOTHING) == self._task_id)


class _Attributes(dict[str, Any]):
    """The ``vars`` of an operator, with its reads noted. Python's own attribute access does not call these methods."""

    def __init__(self, attributes: dict[str, Any], names: frozenset[str], note: Callable[[str], object]) -> None:
        super().__init__(attributes)
        self._names = names
        self._note = note

    def __getitem__(self, name: str) -> Any:
        self._read(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self._read(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:  # ** and dict() come this way too
        self._read("attributes")
        return super().__iter__()

    def items(self) -> Any:
        self._read("attributes")
        return super().items()

    def values(self) -> Any:
        self._read("attributes")
        return super().values()

    def copy(self) -> Any:
        self._read("attributes")
        return dict(super().items())

    def _read(self, name: str) -> None:
        reader = str(sys._getframe(2).f_globals.get("__name__"))
        if reader.startswith("airflow.sdk.") or reader.partition(".")[0] in _MACHINERY:
            return
        if name in self._names or name == "attributes":
            self._note(f"asks for its {name.lstrip('_')}, which only its task has")


def _is_comparison(frame: FrameType | None, names: str | tuple[str, ...] = _COMPARES) -> bool:
    """Whether Airflow reads an attribute to compare operators, for a dict of them: that is no read of a poke."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("airflow.sdk."):
        if frame.f_code.co_qualname.startswith(names):
            return True
        frame = frame.f_back
    return False
