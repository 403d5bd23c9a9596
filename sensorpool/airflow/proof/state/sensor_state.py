"""Changes of a sensor by its poke: natively the next poke finds them, and so does the code after the last poke.

A snapshot of the sensor's attributes before a poke is compared with a later one. Objects that are made once and hold
no answers are left out: hooks, clients, loggers, and what a class computes from its arguments alone.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cached_property
from operator import is_
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.codec import encode
from sensorpool.airflow.proof.state import made_once
from sensorpool.airflow.proof.state.captured_values import Capturer
from sensorpool.airflow.proof.state.references import is_operator

_DATA_METHODS = frozenset(dir(str)) | frozenset(dir(dict)) | frozenset(dir(list))

_OURS = "_sensorpool_"  # the beginning of the names of sensorpool's own attributes
_CANNOT_CHANGE = frozenset(
    {str, bytes, int, float, complex, bool, type(None), dt.date, dt.datetime, dt.time, dt.timedelta}
)

Snapshot = Mapping[str, int]


def snapshot(operator: BaseOperator) -> Snapshot:
    """Return a number for each of an operator's own attributes; the number differs when the attribute changes."""
    attributes = operators.own_attributes(operator)
    capturer = Capturer(lambda _: True, whole=True)
    return {
        name: hash(capturer.capture(name, value))
        for name, value in attributes.items()
        if not name.startswith(_OURS)
        and not is_made_once(name, value)
        and not _is_computed(type(operator), name, value, attributes)
    }


def changed_attribute(before: Snapshot, operator: BaseOperator) -> str | None:
    """Return the name of an attribute that was changed, added or removed since a snapshot."""
    return min(changed_attributes(before, operator), default=None)


def changed_attributes(before: Snapshot, operator: BaseOperator) -> frozenset[str]:
    """Return the names of the attributes that were changed, added or removed since a snapshot."""
    after = snapshot(operator)
    if before == after:
        return frozenset()
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


class Baseline:
    """The state of an operator when it was built, and a quick comparison after each poke: most pokes change nothing.

    :param operator: one that has not been poked yet.
    """

    __slots__ = ("_attributes", "_mutable", "_snapshot")

    def __init__(self, operator: BaseOperator) -> None:
        self._snapshot = snapshot(operator)
        self._remember(operator)

    def changes(self, operator: BaseOperator) -> frozenset[str]:
        """Return the names of the attributes that were changed, added or removed since."""
        if self._is_unchanged(operator):
            return frozenset()
        names = changed_attributes(self._snapshot, operator)
        if not names:
            self._remember(operator)  # the poke may have made a hook
        return names

    def _remember(self, operator: BaseOperator) -> None:
        attributes = operators.own_attributes(operator)
        self._attributes = dict(vars(operator))
        # these objects may change in place
        self._mutable = [name for name in self._snapshot if type(attributes.get(name)) not in _CANNOT_CHANGE]

    def _is_unchanged(self, operator: BaseOperator) -> bool:
        was, now = self._attributes, vars(operator)
        if was.keys() != now.keys() or not all(map(is_, was.values(), now.values())):
            return False
        capturer = Capturer(lambda _: True, whole=True)
        return all(
            name in now and hash(capturer.capture(name, now[name])) == self._snapshot[name] for name in self._mutable
        )


def is_made_once(name: str, value: Any) -> bool:
    """Whether a value is None, an operator, or an object that a sensor makes once to ask its backend."""
    return value is None or is_operator(type(value)) or made_once.is_made_once(name, type(value))


def _is_computed(cls: type, name: str, value: Any, attributes: Mapping[str, Any]) -> bool:
    """Whether a value is that of a cached_property which reads other attributes only, or makes an object."""
    made = operators.class_attribute(cls, name)
    if not isinstance(made, cached_property):
        return False
    base = next(base for base in cls.__mro__ if name in vars(base))
    if known_sensors.is_reviewed(base):
        return True
    try:
        encode(value)
    except NotPoolable:
        return True
    code: Any = getattr(made.func, "__code__", None)
    if code is None or code.co_freevars or any(hasattr(constant, "co_code") for constant in code.co_consts):
        return False
    return attributes.keys() - {name} | _DATA_METHODS >= set(code.co_names)
