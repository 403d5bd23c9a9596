"""Values that are carried to another process as JSON: each comes back as it was, and holds no secret.

What a sensor's arguments may be is less (`codec`): they are a condition's identity, and have one spelling.
"""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pendulum

from sensorpool.airflow import compat
from sensorpool.airflow.codec import TYPE, VALUE, decode, encode
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.rebuild import same
from sensorpool.instrumentation.redaction import hide_password

_ANY_DEPTH = 1_000
_ZONE = "zone"
_DATE, _MOMENT, _ZONED = "pendulum.Date", "pendulum.DateTime", "zoned"

_READERS: dict[Any, Callable[[dict[str, Any]], Any]] = {
    "tuple": lambda said: tuple(map(read, said[VALUE])),
    "set": lambda said: set(map(read, said[VALUE])),
    "frozenset": lambda said: frozenset(map(read, said[VALUE])),
    "decimal": lambda said: Decimal(said[VALUE]),
    _DATE: lambda said: pendulum.Date.fromisoformat(said[VALUE]),
    _MOMENT: lambda said: pendulum.instance(dt.datetime.fromisoformat(said[VALUE])).in_timezone(said[_ZONE]),
    _ZONED: lambda said: dt.datetime.fromisoformat(said[VALUE]).astimezone(ZoneInfo(said[_ZONE])),
}


class NotCarried(Exception):
    """JSON cannot say a value so that it comes back the same, or the value holds a secret."""


def carry(name: str, value: Any) -> Any:
    """Say a value as JSON.

    :param name: of the attribute that has it; by its name it may be a secret.
    :raises NotCarried: when it would be another one when it is read, or is secret.
    """
    try:
        said = _said(value)
        is_secret = without_secrets(name, said) != said
        is_same = same(value, read(json.loads(json.dumps(said))))
    except NotPoolable as error:
        raise NotCarried(str(error)) from None
    except Exception as error:  # of an odd class: its text may hold anything
        raise NotCarried(f"JSON cannot say it: {type(error).__name__}") from None
    if is_secret:
        raise NotCarried("it holds a secret")
    if not is_same:
        raise NotCarried("it would come back from JSON as another one")
    return said


def read(said: Any) -> Any:
    """Read what `carry` said.

    :raises ValueError: when it names a type that there is not.
    """
    if isinstance(said, list):
        return [read(item) for item in said]
    if not isinstance(said, dict):
        return said
    if TYPE not in said:
        return {name: read(item) for name, item in said.items()}
    reader = _READERS.get(said[TYPE])
    return decode(said) if reader is None else reader(said)


def without_secrets(name: str, said: Any) -> Any:
    """Hide in JSON what one of Airflow's maskers would, and passwords in URLs."""
    for redact in compat.maskers():
        said = redact(said, name, _ANY_DEPTH)
    return _without_passwords(said)


def _said(value: Any) -> Any:
    match value:
        case list():
            return [_said(item) for item in value]
        case tuple():
            return {TYPE: "tuple", VALUE: [_said(item) for item in value]}
        case set() | frozenset():
            kind = "frozenset" if isinstance(value, frozenset) else "set"
            return {TYPE: kind, VALUE: sorted((_said(item) for item in value), key=json.dumps)}
        case dict() if TYPE not in value and all(isinstance(name, str) for name in value):
            return {name: _said(item) for name, item in value.items()}
        case Decimal():
            return {TYPE: "decimal", VALUE: str(value)}
    return _moment(value) or encode(value)


def _moment(value: Any) -> dict[str, str] | None:
    """Say what `codec` would give back as another class, or in another zone."""
    if type(value) is pendulum.Date:
        return {TYPE: _DATE, VALUE: value.isoformat()}
    if isinstance(value, dt.datetime) and isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        kind = _MOMENT if isinstance(value, pendulum.DateTime) else _ZONED
        return {TYPE: kind, VALUE: value.isoformat(), _ZONE: value.tzinfo.key}
    return None


def _without_passwords(said: Any) -> Any:
    match said:
        case str():
            return hide_password(said)
        case list():
            return [_without_passwords(item) for item in said]
        case dict():
            return {hide_password(name): _without_passwords(item) for name, item in said.items()}
    return said
