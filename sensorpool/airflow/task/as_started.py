"""What a task was built with when it started: natively a sensor in ``mode="poke"`` waits for that to its end.

A task that resumes is built again, in another process: its DAG file may say another day, a template or a Variable may
have another value, and so may what its constructor finds elsewhere. So a task that leaves its slot takes its attributes
along, in the arguments of its resume method: the values of those that JSON can say, and a digest of the other data.
There the values are put back; where other data has changed the task does not go on natively. So are plain constants of
the company's modules which its code names: the process that resumes has imported them anew.

Airflow keeps these arguments in its database: so they are small, and no secret is among them. What is no data is left
as it is built: a hook has the Connection of the moment.
"""

import datetime as dt
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import MemberDescriptorType
from typing import Any
from uuid import UUID

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.exceptions import AirflowException

from sensorpool.airflow import compat
from sensorpool.airflow.codec import encode
from sensorpool.airflow.proof import built, carried, constants, known_sensors, left
from sensorpool.airflow.proof.rebuild import same

NAME = "as_started"  # the argument of the resume methods
_CONSTANTS = "constants"
_MOST = 4_096  # characters
_DEEPEST = 4
_HIDDEN = "~"  # stands before the digest of what holds a secret: that is left out
_DATA = (
    *(str, bytes, int, float, complex, dt.date, dt.time, dt.timedelta, dt.tzinfo),
    *(PurePath, Decimal, Enum, UUID, re.Pattern),
)


def tell(operator: BaseOperator, alike: BaseOperator | None = None) -> dict[str, str]:
    """Return what the resume method is to be called with.

    :param operator: before it does anything.
    :param alike: built from the same arguments; where it is given, the operator has done something already, and what
        that has changed is left out.
    """
    attributes = built.attributes(operator)
    if alike is not None:
        theirs = built.attributes(alike)
        attributes = {name: value for name, value in attributes.items() if name in theirs and same(value, theirs[name])}
    values = {name: said for name, value in attributes.items() if (said := _encoded(name, value)) is not None}
    others = attributes.keys() - values.keys()
    shared = {
        path: said for path, one in constants.of(type(operator)).items() if (said := _encoded(one.name, one.value))
    }
    told: dict[str, dict[str, Any]] = {"values": {}, "digests": {}, _CONSTANTS: {}}
    room = _MOST - len(json.dumps(told))
    for name in [*sorted(values, key=lambda name: len(values[name])), *sorted(others)]:
        said = values.get(name, "")
        if said and (size := _size(name, said)) <= room:
            told["values"][name] = json.loads(said)
        elif (digest := _digest_of_data(operator, name, attributes[name])) and (size := _size(name, digest)) <= room:
            told["digests"][name] = digest
        else:
            continue
        room -= size
    for path in sorted(shared, key=lambda path: len(shared[path])):
        if (size := _size(path, shared[path])) <= room:
            told[_CONSTANTS][path] = json.loads(shared[path])
            room -= size
    return {NAME: json.dumps(told, separators=(",", ":"))}


def put_back(operator: BaseOperator, told: Any) -> AirflowException | None:
    """Give an operator the attributes that were told, and say so in its log.

    :param told: as Airflow has kept it; nothing is put back if another version wrote it otherwise.
    :return: what the task ends with if it has to go on natively, and an attribute cannot be put back. Airflow retries:
        so it ends natively if its process is lost, and the next try is built with the new value.
    """
    values, digests, shared = _read(told)
    here = built.attributes(operator)
    differing = []
    for name, said in values.items():
        with suppress(Exception):  # of another version
            value = carried.read(said)
            if (name not in here or not same(here[name], value)) and is_attribute(type(operator), name):
                put(operator, name, value)
                differing.append(name)
    there = constants.of(type(operator)) if shared else {}
    for path in shared.keys() & there.keys():  # none but what its class names
        with suppress(Exception):
            value = carried.read(shared[path])
            if not same(there[path].value, value):
                there[path].put(value)  # this process is this task's
                differing.append(path.replace(":", "."))
    if differing:
        line = "sensorpool: another %s was built here; it goes on with what the task started with"
        operator.log.info(line, ", ".join(sorted(differing)))
    lost = [name for name, digest in digests.items() if name in here and not _is_alike(name, here[name], digest)]
    if not lost:
        return None
    return AirflowException(
        f"sensorpool: the task cannot go on by itself: its attribute {min(lost)} is another one than when it started, "
        "and the one that it waited for could not be kept (only small values that JSON can say, and no secrets, are). "
        f"The next try waits for the new one. Give what {min(lost)} is made of as an argument, or exclude the task."
    )


def _read(told: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    try:
        found = json.loads(told)
        return dict(found["values"]), dict(found["digests"]), dict(found.get(_CONSTANTS, {}))
    except (TypeError, ValueError, KeyError):
        return {}, {}, {}


def is_attribute(cls: type, name: str) -> bool:
    """Whether a class has no method under a name, nor a property: its code may be another one meanwhile."""
    of_class = compat.class_attribute(cls, name)
    return isinstance(of_class, MemberDescriptorType) or (not callable(of_class) and not hasattr(of_class, "__set__"))


def put(operator: BaseOperator, name: str, value: Any) -> None:
    """Give an operator an attribute, past what its class does when one is set."""
    slot = compat.class_attribute(type(operator), name)
    if isinstance(slot, MemberDescriptorType):
        slot.__set__(operator, value)
    else:
        vars(operator)[name] = value


def _size(name: str, said: str) -> int:
    return len(json.dumps(name)) + len(json.dumps(said)) + len(":,")


def _encoded(name: str, value: Any) -> str | None:
    """Say a value as JSON; None where it cannot be carried."""
    try:
        return json.dumps(carried.carry(name, value))
    except carried.NotCarried:
        return None


def _digest_of_data(operator: BaseOperator, name: str, value: Any) -> str | None:
    """Return a digest of what cannot be kept; None where that does not matter: no data, or none that is waited for."""
    cls = type(operator)
    if known_sensors.declares_fields(cls) and name not in known_sensors.fields(cls):
        return None
    try:
        if known_sensors.was_read(cls):
            encode(value)  # what else those have is worked out of that
        said = _data(name, value)
        hidden = carried.without_secrets(name, said)
        return built.digest(said) if hidden == said else _HIDDEN + built.digest(hidden)
    except Exception:  # of an odd class, or no data
        return None


def _is_alike(name: str, value: Any, digest: str) -> bool:
    try:
        said = _data(name, value)
        return bool(digest == built.digest(said)) or digest == _HIDDEN + built.digest(
            carried.without_secrets(name, said)
        )
    except Exception:  # of an odd class, or no data
        return True


def _data(name: str, value: Any, depth: int = _DEEPEST) -> Any:
    """Say as JSON what is made of data alone. What a sensor asks by, or calls, is no part of what it waits for.

    :raises TypeError: when there is something else in it.
    """
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None or built.is_logger(value):
        return kind
    if left.is_made_once(name, value) or depth < 0:
        raise TypeError(kind)
    if isinstance(value, _DATA):
        return built.said(value)
    match value:
        case dict():
            return [kind, [{str(key): [_data("", key, depth - 1), _data("", value[key], depth - 1)]} for key in value]]
        case list() | tuple():
            return [kind, [_data("", item, depth - 1) for item in value]]
        case set() | frozenset():
            return [kind, sorted((_data("", item, depth - 1) for item in value), key=json.dumps)]
    made_of = None if callable(value) else compat.made_of(value)
    if not made_of:
        raise TypeError(kind)
    return [kind, {part: _data(part, made_of[part], depth - 1) for part in sorted(made_of)}]
