"""Constants of a company's classes, and of the modules that its sensor's code references: each import computes them.

``CUTOFF = datetime.now()`` has its value from the process in which the task started.
"""

import datetime as dt
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import pendulum
from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.places import QUALNAME

_MOST = 200
_LARGEST = 200  # parts
_LONGEST = 4_096  # characters
_PLAIN = (type(None), bool, int, float, dt.date, dt.datetime, dt.time, dt.timedelta, pendulum.Date, pendulum.DateTime)
_CONTAINERS = (list, tuple, set, frozenset, dict)
_OF_NO_COMPANY = frozenset({"abc", "airflow", "builtins", "typing"})
_CLASS_CONSTANTS = (str, int, float, dt.date, dt.time, dt.timedelta, PurePath)


class Constant(NamedTuple):
    """A constant, and its owner: a module's dict, or a class."""

    owner: Any
    name: str
    value: Any

    def set(self, value: Any) -> None:
        """Replace the value."""
        if isinstance(self.owner, dict):
            self.owner[self.name] = value
        else:
            type.__setattr__(self.owner, self.name, value)


def referenced_constants(cls: type) -> dict[str, Constant]:
    """Return the constants that a class references, by module and path; none for a stateless class.

    Plain constants of the class itself count as attributes of its sensor (`own_data`).
    """
    if known_sensors.is_stateless(cls):
        return {}
    referenced, found = references.references_of(cls), dict[str, Constant]()
    its_own = {name for name, _ in class_constants(cls)}
    for name, module in referenced.names:
        if name in module:
            _add(found, f"{module.get('__name__')}:{name}", Constant(module, name, module[name]))
    for owner in referenced.classes:
        for name, value in references.class_data(owner).items():
            if not (owner in cls.__mro__ and name in its_own) and vars(owner).get(name) is value:
                _add(
                    found,
                    f"{vars(owner)['__module__']}:{QUALNAME(owner)}.{name}",
                    Constant(owner, name, value),
                )
    return found


def _add(found: dict[str, Constant], path: str, constant: Constant) -> None:
    if len(found) < _MOST and _parts(constant.value, _LARGEST) > 0:
        found[path] = constant


def _parts(value: Any, left: int) -> int:
    """Return a number of parts less those of a value; 0 or less if the value is not plain, or has too many."""
    kind = type(value)
    if kind is str:
        return left - 1 if len(value) <= _LONGEST else 0
    if any(kind is each for each in _CONTAINERS):
        if len(value) >= left:
            return 0
        for item in (*value, *value.values()) if kind is dict else value:
            left = _parts(item, left)
            if left <= 0:
                return 0
        return left - 1
    is_plain = any(kind is each for each in _PLAIN) or issubclass(
        kind, PurePath
    )  # `in` would hash the class, and a metaclass may forbid that
    return left - 1 if is_plain else 0


def own_data(operator: BaseOperator) -> dict[str, Any]:
    """Return an operator's own attributes, and the constants of its company's classes."""
    return {**dict(class_constants(type(operator))), **operators.own_attributes(operator)}


def class_constants(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the constants of a company's class: a process that has imported older code has other values."""
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in _OF_NO_COMPANY:
            for name, value in vars(base).items():
                if (
                    isinstance(value, _CLASS_CONSTANTS)
                    and not name.startswith("__")
                    and name not in operators.base_attributes()
                ):
                    yield name, value
