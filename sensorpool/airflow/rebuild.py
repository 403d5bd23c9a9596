"""Say a sensor as JSON, and build it again from that: no work per class.

What counts are the arguments of its constructor, with templates rendered. That they make the same sensor is proved on
the worker before anything is registered: built again, all its attributes must be the same.
"""

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from inspect import Parameter, signature
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import compat
from sensorpool.airflow.codec import decode, encode
from sensorpool.airflow.refusal import NotPoolable
from sensorpool.redaction import one_line

_DEEPEST = 4
_TASK_ID = "sensorpool"
_FIELDS = "poke_context_fields"
_BY_ITSELF = re.compile(r"multiple values for keyword argument '(\w+)'")


def poke_context_of(sensor: BaseSensorOperator) -> dict[str, Any]:
    """Return the JSON object that a sensor can be built from: its poke_context.

    AIP-17's ``poke_context_fields`` is honoured where the class has it: then these attributes are the arguments.

    :raises NotPoolable: when an argument cannot be said as JSON, or the sensor built from it is another one.
    """
    arguments, again = _rebuilt(sensor, _arguments(sensor))
    if hasattr(type(sensor), _FIELDS):
        of_sensor, of_again = _arguments(sensor), _arguments(again)
    else:
        of_sensor, of_again = _state(sensor), _state(again)
    if (name := _difference(of_sensor, of_again)) is not None:
        raise NotPoolable(f"built again from its arguments, its attribute {name} is another one")
    return arguments


def arguments_of(operator: BaseOperator, names: Collection[str] | None) -> dict[str, Any]:
    """Return those arguments of an operator, or all, as JSON that it can be built from.

    :raises NotPoolable: when they cannot be said as JSON, or it cannot be built from them.
    """
    arguments = _arguments(operator)
    return _rebuilt(operator, {name: arguments[name] for name in arguments if names is None or name in names})[0]


def _rebuilt(operator: BaseOperator, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Say arguments as JSON, and build the operator from that."""
    own = signature(type(operator).__init__).parameters
    encoded: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            encoded[name] = encode(value, f"its argument {name}")
        except NotPoolable:
            if name in own:
                raise
            # what a class hands on to its base by itself: built again, it does so again
    while True:
        try:
            return encoded, rebuild(type(operator), json.loads(json.dumps(encoded)))
        except Exception as error:
            by_itself = _BY_ITSELF.search(str(error))
            if by_itself is None or encoded.pop(by_itself[1], None) is None:
                raise NotPoolable(f"it cannot be built again from its arguments: {one_line(error)}") from None


def rebuild(cls: Any, poke_context: Mapping[str, Any]) -> Any:
    """Build a sensor from its poke_context.

    :raises Exception: whatever its constructor raises.
    """
    return cls(task_id=_TASK_ID, **{name: decode(value) for name, value in poke_context.items()})


def state_of(sensor: BaseSensorOperator) -> dict[str, Any]:
    """Return those attributes of a sensor that JSON can say, to see later whether a poke changes them."""
    found: dict[str, Any] = {}
    for name, value in _state(sensor).items():
        try:
            found[name] = encode(value)
        except NotPoolable:
            continue
    return found


def _arguments(sensor: BaseOperator) -> dict[str, Any]:
    fields = getattr(type(sensor), _FIELDS, None)
    if fields is not None:
        missing = [name for name in fields if not hasattr(sensor, name)]
        if missing:
            raise NotPoolable(f"its poke_context_fields name {missing[0]}, which it does not have")
        return {name: getattr(sensor, name) for name in fields}
    parameters = signature(type(sensor).__init__).parameters
    arguments: dict[str, Any] = {}
    for name, value in compat.constructor_arguments(sensor).items():
        if name in compat.base_arguments():
            continue
        # the constructor's arguments are as the DAG file gave them; the attributes are rendered
        given = getattr(sensor, name) if name in sensor.template_fields and hasattr(sensor, name) else value
        if name in parameters and _is_default(parameters[name], given):
            continue  # so that a default that is spelled out is the same condition
        arguments[name] = given
    return arguments


def _is_default(parameter: Parameter, value: Any) -> bool:
    default = parameter.default
    if default is value:
        return True
    return type(default) is type(value) and isinstance(value, str | int | float) and bool(default == value)


def _state(sensor: BaseSensorOperator) -> dict[str, Any]:
    base = compat.base_attributes()
    return {
        name: value
        for name, value in vars(sensor).items()
        if name not in base and not name.startswith(("_BaseOperator__", "_abc_"))
    }


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Name an attribute that differs."""
    for name in one.keys() | other.keys():
        if name not in one or name not in other or not _same(one[name], other[name], _DEEPEST):
            return name
    return None


def _same(one: Any, other: Any, depth: int) -> bool:
    """Whether a poke can see no difference: equal is not enough, `Path("a") == PurePath("a")`."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        match one:
            case dict():
                named_alike = one.keys() == other.keys() and _types(one) == _types(other)
                return named_alike and all(_same(one[name], other[name], depth) for name in one)
            case list() | tuple():
                return len(one) == len(other) and all(map(_same, one, other, [depth] * len(one)))
            case set() | frozenset():
                return bool(one == other) and _types(one) == _types(other)
            case dt.datetime() | dt.time():
                # an offset is not its time zone: another day may have another one
                zones = [(moment.tzinfo is None, moment.tzname()) for moment in (one, other)]
                return bool(one == other) and zones[0] == zones[1]
        if one == other:
            return True
    except Exception:
        return False
    # an object without an equality of its own is what it is made of
    if depth == 0 or not hasattr(one, "__dict__") or callable(one):
        return False
    return _same(vars(one), vars(other), depth - 1)


def _types(items: Collection[Any]) -> Counter[type]:
    return Counter(map(type, items))
