"""What a poke leaves in its sensor: natively the next poke finds it, and so does what comes after the last one.

A picture of a sensor's attributes is taken before, and held against one that is taken later. What is made once and
holds no answers is in no picture: hooks, clients, loggers, and what a class works out of its arguments alone.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cached_property
from operator import is_
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow import compat
from sensorpool.airflow.codec import encode
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors, spelt
from sensorpool.airflow.proof.reach import is_operator
from sensorpool.airflow.proof.spelt import Speller

_DATA_METHODS = frozenset(dir(str)) | frozenset(dir(dict)) | frozenset(dir(list))

_OURS = "_sensorpool_"  # what we put on a sensor
_CANNOT_CHANGE = frozenset(
    {str, bytes, int, float, complex, bool, type(None), dt.date, dt.datetime, dt.time, dt.timedelta}
)

Picture = Mapping[str, int]


def picture(operator: BaseOperator) -> Picture:
    """Return a number for each attribute of an operator that not every sensor has; another one when it changes."""
    attributes = compat.own_attributes(operator)
    speller = Speller(lambda _: True, own=True)
    return {
        name: hash(speller.of(name, value))
        for name, value in attributes.items()
        if not name.startswith(_OURS)
        and not is_made_once(name, value)
        and not _is_worked_out(type(operator), name, value, attributes)
    }


def changed(before: Picture, operator: BaseOperator) -> str | None:
    """Name an attribute that is another one than in a picture, that was added or that is gone."""
    return min(changes(before, operator), default=None)


def changes(before: Picture, operator: BaseOperator) -> frozenset[str]:
    """Name the attributes that are others than in a picture, that were added or that are gone."""
    after = picture(operator)
    if before == after:
        return frozenset()
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


class Baseline:
    """What an operator was when it was built, and a quick look after each poke: most change nothing.

    :param operator: that has not been poked yet.
    """

    __slots__ = ("_attributes", "_inside", "_picture")

    def __init__(self, operator: BaseOperator) -> None:
        self._picture = picture(operator)
        self._remember(operator)

    def changes(self, operator: BaseOperator) -> frozenset[str]:
        """Name the attributes that are others now, that were added or that are gone."""
        if self._is_as_it_was(operator):
            return frozenset()
        names = changes(self._picture, operator)
        if not names:
            self._remember(operator)  # it has its hook now, perhaps
        return names

    def _remember(self, operator: BaseOperator) -> None:
        attributes = compat.own_attributes(operator)
        self._attributes = dict(vars(operator))
        # these may change though they are the same objects
        self._inside = [name for name in self._picture if type(attributes.get(name)) not in _CANNOT_CHANGE]

    def _is_as_it_was(self, operator: BaseOperator) -> bool:
        was, now = self._attributes, vars(operator)
        if was.keys() != now.keys() or not all(map(is_, was.values(), now.values())):
            return False
        speller = Speller(lambda _: True, own=True)
        return all(name in now and hash(speller.of(name, now[name])) == self._picture[name] for name in self._inside)


def is_made_once(name: str, value: Any) -> bool:
    """Whether a value is nothing, or what a sensor makes when it first needs it, and asks its backend by."""
    return value is None or is_operator(type(value)) or spelt.is_made_once(name, type(value))


def _is_worked_out(cls: type, name: str, value: Any, attributes: Mapping[str, Any]) -> bool:
    """Whether a value is that of a cached_property which asks for other attributes only, or makes an object."""
    made = compat.class_attribute(cls, name)
    if not isinstance(made, cached_property):
        return False
    base = next(base for base in cls.__mro__ if name in vars(base))
    if known_sensors.was_read(base):
        return True
    try:
        encode(value)
    except NotPoolable:
        return True
    code: Any = getattr(made.func, "__code__", None)
    if code is None or code.co_freevars or any(hasattr(constant, "co_code") for constant in code.co_consts):
        return False
    return attributes.keys() - {name} | _DATA_METHODS >= set(code.co_names)
