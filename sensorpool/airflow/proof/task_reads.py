"""What only a task has: its names, its DAG, its params, how it waits. In the pool a sensor is built without a task.

Two tasks with equal arguments share a poke; one that looks for `<task_id>.done` must not. The attributes themselves are
watched, by descriptors in the sensor's class, so it does not matter who reads them, and how: a helper that knows its
sensor, a property, ``getattr``. On the worker the first poke is told the truth, and that is noted (`noting`); the pool
tells nothing, and hands back (`seal`).
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FrameType
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import compat, errors
from sensorpool.airflow.proof import known_sensors
from sensorpool.errors import InfraFailure
from sensorpool.instrumentation.redaction import one_line

_SEALED = (
    "_sensorpool_sealed"  # the attribute of an operator without a task: stands for it where operators are compared
)
_COMPARES = ("BaseOperator.__hash__", "BaseOperator.__eq__")
_MACHINERY = frozenset({"copy", "copyreg", "functools", "sensorpool"})  # copies, or keeps what a method returned
_NOTHING = object()
_HOW_IT_WAITS = (
    *("timeout", "execution_timeout", "poke_interval", "exponential_backoff", "max_wait", "reschedule"),
    *("soft_fail", "silent_fail", "never_fail", "do_xcom_push"),
)


@contextmanager
def noting(operator: Any, note: Callable[[str], object]) -> Iterator[None]:
    """Note what is read of an operator that only its task has; of its copies, too, for what it holds may know one."""
    cls, attributes = type(operator), vars(operator)
    places = {name: vars(cls).get(name, _NOTHING) for name in _places(cls)}
    noted = _Attributes(attributes, frozenset(places), note)
    with ExitStack() as stack:
        for name, was in places.items():
            setattr(cls, name, _Noted(cls, name, was, attributes.get("task_id"), note))
            stack.callback(*((delattr, cls, name) if was is _NOTHING else (setattr, cls, name, was)))
        operator.__dict__ = noted
        stack.callback(_give_back, operator, attributes, noted)
        yield


def _give_back(operator: Any, attributes: dict[str, Any], noted: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(dict.items(noted))
    operator.__dict__ = attributes


def seal(operator: Any) -> Any:
    """Take from an operator what it has for want of a task; a read of it raises `OnlyOnWorker`. Return the operator.

    A class that has AIP-17's ``poke_context_fields`` says that its answer does not depend on that: it is left alone.
    """
    cls: type = type(operator)
    attributes = vars(operator)
    if known_sensors.declares_fields(cls):
        return operator
    for name in _sealed(cls):
        attributes.pop(name, None)
    attributes[_SEALED] = _Seal()
    return operator


@contextmanager
def insisting(
    operator: Any, may_miss: frozenset[str] | None = frozenset(), of_environment: frozenset[str] = frozenset()
) -> Iterator[list[str]]:
    """Insist on what is refused to a poke: one that catches everything, and makes do without, must not answer.

    :param may_miss: Connections and Variables that it may do without (`missing`).
    :param of_environment: those that its worker found in its environment.
    :yields: what is refused: what the sealed operator and its copies refuse, in whichever thread, and more.
    :raises OnlyOnWorker: if something was.
    :raises InfraFailure: when a Connection or Variable cannot be looked up now.
    """
    with errors.Asked(may_miss, of_environment, asker=errors.POKE) as asked:
        seal_of = vars(operator).get(_SEALED, _Seal())
        seal_of.refused = asked.refused
        try:
            yield asked.refused
        except errors.Unanswered as error:
            raise InfraFailure(str(error)) from None
        except Exception as error:
            if asked.missed is not None:  # nobody knows whether its worker has it
                why = f"its poke failed, and the pool does not find the {asked.missed}: {one_line(error)}"
                raise errors.OnlyOnWorker(why) from error
            raise
        finally:
            seal_of.refused = None
            if asked.refused:
                raise errors.OnlyOnWorker(asked.refused[0])
            if asked.unanswered is not None:
                raise InfraFailure(asked.unanswered)


class _Seal:
    """Stands for an operator without a task where operators are compared."""

    def __init__(self) -> None:
        self.refused: list[str] | None = None

    def __deepcopy__(self, _: Any) -> "_Seal":
        return self

    def __reduce__(self) -> Any:
        return _Seal, ()


@cache
def _sealed(cls: type) -> list[str]:
    """Have a class refuse what its operators, once sealed, do not have; return the names."""
    names = _places(cls)
    for name in names:
        setattr(cls, name, _Sealed(cls, name, vars(cls).get(name, _NOTHING)))
    return names


def _places(cls: type) -> list[str]:
    """Return the names that are attributes of an instance, and not properties of a class."""
    found = {name: compat.class_attribute(cls, name) for name in compat.task_attributes(cls)}
    return [name for name, value in found.items() if isinstance(value, _Sealed) or not hasattr(type(value), "__set__")]


def worked_out(cls: type) -> str | None:
    """Name what a class works out at each read, of how its tasks wait: the pool reads it once."""
    for name in _HOW_IT_WAITS:
        value, airflows = compat.class_attribute(cls, name), compat.class_attribute(BaseSensorOperator, name)
        while isinstance(value, _Attribute):
            value = value._was
        if value is not airflows and hasattr(type(value), "__get__"):
            return name
    return None


class _Attribute:
    """Stands in a class where instances have an attribute."""

    __slots__ = ("_cls", "_name", "_was")

    def __init__(self, cls: type, name: str, was: object) -> None:
        self._cls = cls
        self._name = name
        self._was = was

    def _of_class(self, operator: Any, owner: Any) -> Any:
        """Return what the class has under this name.

        :raises AttributeError: when it has nothing.
        """
        if self._was is _NOTHING:
            return getattr(super(self._cls, owner if operator is None else operator), self._name)
        bind = getattr(type(self._was), "__get__", None)
        return self._was if bind is None else bind(self._was, operator, owner)


class _Sealed(_Attribute):
    """Comes before what an instance has: what is not sealed has it."""

    __slots__ = ()

    def __get__(self, operator: Any, owner: Any = None) -> Any:
        attributes = {} if operator is None else vars(operator)
        if self._name in attributes:
            return attributes[self._name]
        seal_of = attributes.get(_SEALED)
        if seal_of is None:
            return self._of_class(operator, owner)
        if _is_comparison(sys._getframe(1)):
            return seal_of  # without a task, an operator equals none but itself
        why = f"its poke asks for its {self._name.lstrip('_')}, which only its task has"
        raise errors.refuse(why, seal_of.refused)

    def __set__(self, operator: Any, value: Any) -> None:
        self._keep_from_changing(operator)
        vars(operator)[self._name] = value

    def __delete__(self, operator: Any) -> None:
        self._keep_from_changing(operator)
        if vars(operator).pop(self._name, _NOTHING) is _NOTHING:
            raise AttributeError(self._name)

    def _keep_from_changing(self, operator: Any) -> None:
        if (seal_of := vars(operator).get(_SEALED)) is not None:
            why = f"its poke changes its {self._name.lstrip('_')}, by which its task waits"
            raise errors.refuse(why, seal_of.refused)


class _Noted(_Attribute):
    """Comes before what an instance has, and hands it out."""

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
        if vars(operator).pop(self._name, _NOTHING) is _NOTHING:
            raise AttributeError(self._name)

    def _is_watched(self, attributes: dict[str, Any]) -> bool:
        return bool(attributes.get("task_id", _NOTHING) == self._task_id)


class _Attributes(dict[str, Any]):
    """What ``vars`` gives of an operator: notes what is read there. Python itself finds attributes without asking."""

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
        asks = str(sys._getframe(2).f_globals.get("__name__"))
        if asks.startswith("airflow.sdk.") or asks.partition(".")[0] in _MACHINERY:
            return
        if name in self._names or name == "attributes":
            self._note(f"asks for its {name.lstrip('_')}, which only its task has")


def _is_comparison(frame: FrameType | None) -> bool:
    """Whether Airflow reads an attribute to compare operators: one in a dict asks for nothing."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("airflow.sdk."):
        if frame.f_code.co_qualname.startswith(_COMPARES):
            return True
        frame = frame.f_back
    return False
