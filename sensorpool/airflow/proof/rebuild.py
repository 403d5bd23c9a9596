"""Say a sensor as JSON, and build it again from that: no work per class.

What counts are the arguments of its constructor, with templates rendered. That they make the same sensor is proved on
the worker before anything is registered: built again, all its attributes must be the same.
"""

import datetime as dt
import json
import re
from collections import deque
from collections.abc import Collection, Mapping
from inspect import Parameter, signature
from pathlib import PurePath
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import compat, errors
from sensorpool.airflow.codec import decode, encode
from sensorpool.airflow.errors import NotPoolable, OnlyOnWorker
from sensorpool.airflow.proof import built, environment, inner, known_sensors, order, shared, task_reads
from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import HandBack, InfraFailure
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.answer import Answers

_DEEPEST = 4
_TASK_ID = "sensorpool"
_VALUES = (str, bytes, int, float, complex, dt.date, dt.timedelta, PurePath)
_BY_ITSELF = re.compile(r"multiple values for keyword argument '(\w+)'")


def poke_context_of(sensor: BaseSensorOperator) -> dict[str, Any]:
    """Return the JSON object that a sensor can be built from: its poke_context.

    AIP-17's ``poke_context_fields`` is honoured where the class has it: then these attributes are the arguments.

    :raises NotPoolable: when an argument cannot be said as JSON, or the sensor built from it is another one.
    """
    with shared.left_alone(type(sensor)):
        return _poke_context_of(sensor)


def _poke_context_of(sensor: BaseSensorOperator) -> dict[str, Any]:
    arguments, again = environment.build_checked(lambda: _rebuilt(sensor, _arguments(sensor)))
    if known_sensors.declares_fields(type(sensor)):
        of_sensor, of_again = _arguments(sensor), _arguments(again)
    else:
        of_sensor, of_again = compat.own_attributes(sensor), compat.own_attributes(again)
    if (name := difference(of_sensor, of_again)) is not None:
        if name in of_sensor and not _is_told(of_sensor[name]):
            raise NotPoolable(f"its attribute {name} holds what nobody can see: {type(of_sensor[name]).__qualname__}")
        raise NotPoolable(f"built again from its arguments, its attribute {name} is another one")
    return _with_elsewhere(again, arguments)


def arguments_of(operator: BaseOperator, names: Collection[str] | None) -> dict[str, Any]:
    """Return those arguments of an operator, or all, as JSON that it can be built from.

    :raises NotPoolable: when they cannot be said as JSON, or it cannot be built from them.
    """
    arguments = _arguments(operator)
    if names is not None:
        arguments = {name: arguments[name] for name in arguments if name in names}
        encoded: dict[str, Any] = environment.build_checked(lambda: _rebuilt(operator, arguments))[0]
        return encoded
    with shared.left_alone(type(operator)):
        arguments, again = environment.build_checked(lambda: _rebuilt(operator, arguments))
        return _with_elsewhere(again, arguments)


def _with_elsewhere(again: BaseOperator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add to arguments, encoded, what an operator that was built from them has from elsewhere.

    :raises NotPoolable: when it cannot be built from that.
    """
    more = built.elsewhere(again, arguments)
    if more:
        told = arguments | more
        try:
            name = built.another(rebuild(type(again), told), told)
        except Exception as error:
            if not more[built.NAME]:
                return arguments  # it takes no such argument, and there is nothing to tell
            raise NotPoolable(f"it cannot be built again from its arguments: {one_line(error)}") from None
        if name is not None:
            raise NotPoolable(f"built again from its arguments, its attribute {name} is another one")
    return arguments | more


def with_missing(
    cls: Any, poke_context: dict[str, Any], names: Collection[str] | None, of_environment: Collection[str] = ()
) -> dict[str, Any]:
    """Add to a poke_context which Connections and Variables were not there for the first poke.

    :param names: None, if nobody has looked.
    :raises NotPoolable: when there is no place for that in the arguments of the class.
    """
    told = built.with_missing(poke_context, names, of_environment)
    if told != poke_context and built.NAME not in poke_context:
        try:
            rebuild(cls, told)
        except Exception:
            if not names:
                return poke_context
            why = "its poke does without a Connection or Variable that is not there, and its class takes no `doc`"
            raise NotPoolable(f"{why} to tell the pool so") from None
    return told


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
            return encoded, rebuild(type(operator), _as_registered(encoded))
        except Exception as error:
            by_itself = _BY_ITSELF.search(str(error))
            if by_itself is None or encoded.pop(by_itself[1], None) is None:
                raise NotPoolable(f"it cannot be built again from its arguments: {one_line(error)}") from None


def _as_registered(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as the pool gets them: from their one spelling, with the order of their mappings put back."""
    arguments: dict[str, Any] = json.loads(json.dumps(encoded, sort_keys=True))
    return order.put_back(arguments, order.of(encoded))


def rebuild(cls: Any, poke_context: Mapping[str, Any]) -> Any:
    """Build a sensor from its poke_context.

    :raises Exception: whatever its constructor raises.
    """
    return cls(task_id=_TASK_ID, **{name: decode(value) for name, value in built.ordered(poke_context).items()})


def build(cls: Any, poke_context: Mapping[str, Any]) -> Any:
    """Build in the pool what was proved on its worker, without a task (`task_reads`).

    :raises HandBack: when it cannot be built in this process, or is another one: its worker has another environment.
    :raises Exception: what says that a backend did not answer.
    """
    try:
        # what is missing here and was there on its worker shows in what is built
        with errors.Asked(of_environment=built.of_environment(poke_context), asker=errors.CONSTRUCTOR) as asked:
            operator = rebuild(cls, poke_context)
            name = built.another(operator, poke_context) or built.shares_another(cls, poke_context)
        if asked.unanswered is not None:
            raise InfraFailure(asked.unanswered)
        if asked.refused:
            raise OnlyOnWorker(asked.refused[0])
        if name is None:
            return task_reads.seal(operator)
    except errors.Unanswered as error:
        raise InfraFailure(str(error)) from None
    except (Exception, SystemExit, OnlyOnWorker) as error:
        if Answers(INFRA_FAILURES).is_infra_failure(error):
            raise
        raise HandBack(f"it cannot be built in the pool from its arguments: {one_line(error)}") from None
    raise HandBack(f"built in the pool, its attribute {name} is another one than on its worker")


def _arguments(sensor: BaseOperator) -> dict[str, Any]:
    if known_sensors.declares_fields(type(sensor)):
        fields = known_sensors.fields(type(sensor))
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


def difference(one: Mapping[str, Any], other: Mapping[str, Any], depth: int = _DEEPEST) -> str | None:
    """Name an attribute that differs."""
    for name in one.keys() | other.keys():
        if name not in one or name not in other or not same(one[name], other[name], depth):
            return name
    return None


def same(one: Any, other: Any, depth: int = _DEEPEST) -> bool:
    """Whether a poke can see no difference: equal is not enough, `Path("a") == PurePath("a")`.

    An object is what it is made of, for its own equality may leave something out.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        held = inner.of(one)
        if held is not None:
            return same(held, inner.of(other), depth) and _made_alike(one, other, depth)
        return _equal(one, other, depth) and _made_alike(one, other, depth)
    except Exception:  # of an odd class, or `inner.Untold`
        return False


def _is_told(value: Any) -> bool:
    try:
        inner.of(value)
    except inner.Untold:
        return False
    return True


def _equal(one: Any, other: Any, depth: int) -> bool:
    match one:
        case dict():
            return same(list(one.items()), list(other.items()), depth)  # and in one order
        case list() | tuple() | deque():
            return len(one) == len(other) and all(map(same, one, other, [depth] * len(one)))
        case set() | frozenset():
            theirs = {item: item for item in other}
            return bool(one == other) and all(same(item, theirs[item], depth) for item in one)
        case dt.datetime() | dt.time():
            # an offset is not its time zone: another day may have another one
            zones = [(moment.tzinfo is None, moment.tzname()) for moment in (one, other)]
            return bool(one == other) and zones[0] == zones[1]
    # an object without an equality of its own is none but itself; not so what it is made of
    is_opaque = isinstance(one, _VALUES) or callable(one) or compat.made_of(one) is None
    return not is_opaque or bool(one == other)


def _made_alike(one: Any, other: Any, depth: int) -> bool:
    if isinstance(one, PurePath | dt.date | dt.time):  # keep what they have once computed
        return True
    ours, theirs = compat.made_of(one), compat.made_of(other)
    if not ours or not theirs:
        return not ours and not theirs
    return depth > 0 and difference(ours, theirs, depth - 1) is None
