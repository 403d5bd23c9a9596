"""The attributes of a task when it started: natively a sensor in ``mode="poke"`` waits with these to its end.

A task that resumes is built again, in another process: its DAG file may name another day, and a template, a Variable or
another external input may have another value. So a task that leaves its slot saves its attributes in the arguments of
its resume method: the values that JSON can carry, and digests of other data. When the task resumes the values are
restored; a task whose other data has changed does not go on natively. Plain constants of the company's modules that its
code references are saved and restored as well, for the process that resumes has imported them anew.

Airflow keeps these arguments in its database: so they are small, and hold no secret. Attributes that are no data are
built anew: a hook has the Connection of the moment.
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

from sensorpool.airflow.compat import operators
from sensorpool.airflow.compat.exceptions import AirflowException
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import portable_values
from sensorpool.airflow.proof.arguments.portable_values import NotPortable
from sensorpool.airflow.proof.codec import encode
from sensorpool.airflow.proof.state import constants, sensor_state, value_digest
from sensorpool.airflow.proof.state.equality import is_equal
from sensorpool.airflow.proof.state.judged_class import judged_class_of

NAME = "as_started"  # the argument of the resume methods
_CONSTANTS = "constants"
_MOST = 4_096  # characters
_DEEPEST = 4
_HIDDEN = "~"  # begins the digest of data that holds a secret: the secret is left out of it
_DATA = (
    *(str, bytes, int, float, complex, dt.date, dt.time, dt.timedelta, dt.tzinfo),
    *(PurePath, Decimal, Enum, UUID, re.Pattern),
)


def save(operator: BaseOperator, rebuilt: BaseOperator | None = None) -> dict[str, str]:
    """Return an argument for the resume method.

    :param operator: one that has done nothing yet, unless ``rebuilt`` is given.
    :param rebuilt: an operator that was built from the same arguments; attributes that differ from its are left out.
    """
    attributes = constants.own_data(operator)
    if rebuilt is not None:
        theirs = constants.own_data(rebuilt)
        attributes = {
            name: value for name, value in attributes.items() if name in theirs and is_equal(value, theirs[name])
        }
    values = {name: text for name, value in attributes.items() if (text := _encoded(name, value)) is not None}
    others = attributes.keys() - values.keys()
    shared = {
        path: text
        for path, constant in constants.referenced_constants(judged_class_of(operator)).items()
        if (text := _encoded(constant.name, constant.value))
    }
    saved: dict[str, dict[str, Any]] = {"values": {}, "digests": {}, _CONSTANTS: {}}
    room = _MOST - len(json.dumps(saved))
    for name in [*sorted(values, key=lambda name: len(values[name])), *sorted(others)]:
        text = values.get(name, "")
        if text and (size := _size(name, text)) <= room:
            saved["values"][name] = json.loads(text)
        elif (digest := _digest_of_data(operator, name, attributes[name])) and (size := _size(name, digest)) <= room:
            saved["digests"][name] = digest
        else:
            continue
        room -= size
    for path in sorted(shared, key=lambda path: len(shared[path])):
        if (size := _size(path, shared[path])) <= room:
            saved[_CONSTANTS][path] = json.loads(shared[path])
            room -= size
    return {NAME: json.dumps(saved, separators=(",", ":"))}


def restore(operator: BaseOperator, saved: Any) -> AirflowException | None:
    """Restore the saved attributes of an operator, with a line in its log.

    :param saved: the argument that `save` returned; nothing is restored if another version wrote another format.
    :return: the error for a task that has to go on natively and has an attribute that cannot be restored. Airflow
        retries the task, as after the loss of its process, and the next try is built with the new value.
    """
    values, digests, shared = _read(saved)
    here = constants.own_data(operator)
    differing = []
    for name, encoded in values.items():
        with suppress(Exception):  # from another version
            value = portable_values.load(encoded)
            if (name not in here or not is_equal(here[name], value)) and is_plain_attribute(type(operator), name):
                set_attribute(operator, name, value)
                differing.append(name)
    there = constants.referenced_constants(judged_class_of(operator)) if shared else {}
    for path in shared.keys() & there.keys():  # only constants that its class references
        with suppress(Exception):
            value = portable_values.load(shared[path])
            if not is_equal(there[path].value, value):
                there[path].set(value)  # the process has this task alone
                differing.append(path.replace(":", "."))
    if differing:
        line = "sensorpool: %s differs in this process; the task goes on with the value that it started with"
        operator.log.info(line, ", ".join(sorted(differing)))
    lost = [name for name, digest in digests.items() if name in here and not _has_digest(name, here[name], digest)]
    if not lost:
        return None
    return AirflowException(
        f"sensorpool: the task cannot go on by itself: its attribute {min(lost)} is another one than when it started, "
        "and the one that it waited for could not be kept (only small values that JSON can hold, and no secrets, are). "
        f"The next try waits for the new one. Give what {min(lost)} is made of as an argument, or exclude the task."
    )


def _read(saved: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    try:
        found = json.loads(saved)
        return dict(found["values"]), dict(found["digests"]), dict(found.get(_CONSTANTS, {}))
    except (TypeError, ValueError, KeyError):
        return {}, {}, {}


def is_plain_attribute(cls: type, name: str) -> bool:
    """Whether a name is no method and no property of a class: code may have changed, and is not restored."""
    of_class = operators.class_attribute(cls, name)
    return isinstance(of_class, MemberDescriptorType) or (not callable(of_class) and not hasattr(of_class, "__set__"))


def set_attribute(operator: BaseOperator, name: str, value: Any) -> None:
    """Set an attribute of an operator without calling code of its class."""
    slot = operators.class_attribute(type(operator), name)
    if isinstance(slot, MemberDescriptorType):
        slot.__set__(operator, value)
    else:
        vars(operator)[name] = value


def _size(name: str, text: str) -> int:
    return len(json.dumps(name)) + len(json.dumps(text)) + len(":,")


def _encoded(name: str, value: Any) -> str | None:
    """Return a value as JSON text; None if it is not portable."""
    try:
        return json.dumps(portable_values.dump(name, value))
    except NotPortable:
        return None


def _digest_of_data(operator: BaseOperator, name: str, value: Any) -> str | None:
    """Return a digest of data that is not saved; None for what is no data, or no part of the condition."""
    cls = type(operator)
    if known_sensors.declares_fields(cls) and name not in known_sensors.declared_fields(cls):
        return None
    try:
        if known_sensors.is_reviewed(cls):
            encode(value)  # a reviewed class computes its other attributes from such values
        data = _data(name, value)
        hidden = portable_values.mask_secrets(name, data)
        return value_digest.digest(data) if [hidden] == [data] else _HIDDEN + value_digest.digest(hidden)
    except Exception:  # an odd class, or no data
        return None


def _has_digest(name: str, value: Any, digest: str) -> bool:
    try:
        data = _data(name, value)
        return bool(digest == value_digest.digest(data)) or digest == _HIDDEN + value_digest.digest(
            portable_values.mask_secrets(name, data)
        )
    except Exception:  # an odd class, or no data
        return True


def _data(name: str, value: Any, depth: int = _DEEPEST) -> Any:
    """Return data as JSON. Clients and callables are no data, and no part of a condition.

    :raises TypeError: for a value that is no data, or has a part that is none.
    """
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None or value_digest.is_logger(value):
        return kind
    if sensor_state.is_made_once(name, value) or depth < 0:
        raise TypeError(kind)
    if isinstance(value, _DATA):
        return value_digest.canonical_json(value)
    match value:
        case dict():
            return [kind, [{str(key): [_data("", key, depth - 1), _data("", value[key], depth - 1)]} for key in value]]
        case list() | tuple():
            return [kind, [_data("", item, depth - 1) for item in value]]
        case set() | frozenset():
            return [kind, sorted((_data("", item, depth - 1) for item in value), key=json.dumps)]
    parts = None if callable(value) else operators.object_attributes(value)
    if not parts:
        raise TypeError(kind)
    return [kind, {part: _data(part, parts[part], depth - 1) for part in sorted(parts)}]
