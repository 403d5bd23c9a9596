"""Constants of a company's modules and classes, which its sensor's code names (`reach`): what an import has worked out.

``CUTOFF = datetime.now()`` is that of the process in which the task started.
"""

import datetime as dt
from pathlib import PurePath
from typing import Any, NamedTuple

import pendulum

from sensorpool.airflow.proof import built, known_sensors, reach

_MOST = 200
_LARGEST = 200  # parts
_LONGEST = 4_096  # characters
_PLAIN = (type(None), bool, int, float, dt.date, dt.datetime, dt.time, dt.timedelta, pendulum.Date, pendulum.DateTime)
_CONTAINERS = (list, tuple, set, frozenset, dict)


class Constant(NamedTuple):
    """Where one stands: in a module's dict, or in a class."""

    owner: Any
    name: str
    value: Any

    def put(self, value: Any) -> None:
        """Have another value stand there."""
        if isinstance(self.owner, dict):
            self.owner[self.name] = value
        else:
            type.__setattr__(self.owner, self.name, value)


def of(cls: type) -> dict[str, Constant]:
    """Return what a class names, by module and path; none of a class that says itself what its answer depends on.

    The plain ones of the class itself are attributes of its sensor (`built.attributes`).
    """
    if known_sensors.vouches_for_itself(cls):
        return {}
    reached, found = reach.of(cls), dict[str, Constant]()
    its_own = {name for name, _ in built.constants(cls)}
    for name, module in reached.names:
        if name in module:
            _add(found, f"{module.get('__name__')}:{name}", Constant(module, name, module[name]))
    for owner in reached.classes:
        for name, value in reach.data_of(owner).items():
            if not (owner in cls.__mro__ and name in its_own) and vars(owner).get(name) is value:
                _add(found, f"{vars(owner)['__module__']}:{reach.QUALNAME(owner)}.{name}", Constant(owner, name, value))
    return found


def _add(found: dict[str, Constant], path: str, constant: Constant) -> None:
    if len(found) < _MOST and _parts(constant.value, _LARGEST) > 0:
        found[path] = constant


def _parts(value: Any, left: int) -> int:
    """Return how many parts are left of a number when those of a value are taken; 0, if it is not plain or too much."""
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
    is_plain = any(kind is each for each in _PLAIN) or issubclass(kind, PurePath)  # a metaclass may forbid to hash
    return left - 1 if is_plain else 0
