"""Values that JSON carries to another process: each comes back the same, and holds no secret.

Arguments of sensors allow fewer types (`codec`): they are the identity of a condition, and have one spelling each.
"""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pendulum

from sensorpool.airflow.compat import secrets_masker
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.codec import TYPE, VALUE, decode, encode
from sensorpool.airflow.proof.state.equality import is_equal
from sensorpool.instrumentation.redaction import hide_password

_ANY_DEPTH = 1_000
_ZONE = "zone"
_DATE, _MOMENT, _ZONED = "pendulum.Date", "pendulum.DateTime", "zoned"

_READERS: dict[Any, Callable[[dict[str, Any]], Any]] = {
    "tuple": lambda encoded: tuple(map(load, encoded[VALUE])),
    "set": lambda encoded: set(map(load, encoded[VALUE])),
    "frozenset": lambda encoded: frozenset(map(load, encoded[VALUE])),
    "decimal": lambda encoded: Decimal(encoded[VALUE]),
    _DATE: lambda encoded: pendulum.Date.fromisoformat(encoded[VALUE]),
    _MOMENT: lambda encoded: pendulum.instance(dt.datetime.fromisoformat(encoded[VALUE])).in_timezone(encoded[_ZONE]),
    _ZONED: lambda encoded: dt.datetime.fromisoformat(encoded[VALUE]).astimezone(ZoneInfo(encoded[_ZONE])),
}


class NotPortable(Exception):
    """A value would come back from JSON as another one, or holds a secret."""


def dump(name: str, value: Any) -> Any:
    """Encode a value as JSON.

    :param name: the name of its attribute, which may mark it as a secret.
    :raises NotPortable: when it would come back as another value, or holds a secret.
    """
    try:
        encoded = _encode(value)
        is_secret = [mask_secrets(name, encoded)] != [encoded]  # in lists NaN is equal to itself
        is_same = is_equal(value, load(json.loads(json.dumps(encoded))))
    except NotPoolable as error:
        raise NotPortable(str(error)) from None
    except Exception as error:  # an odd class, whose text may hold anything
        raise NotPortable(f"no JSON can hold it: {type(error).__name__}") from None
    if is_secret:
        raise NotPortable("it holds a secret")
    if not is_same:
        raise NotPortable("it would come back from JSON as another one")
    return encoded


def load(encoded: Any) -> Any:
    """Return the value that `dump` has encoded.

    :raises ValueError: when the JSON names an unknown type.
    """
    if isinstance(encoded, list):
        return [load(item) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if TYPE not in encoded:
        return {name: load(item) for name, item in encoded.items()}
    reader = _READERS.get(encoded[TYPE])
    return decode(encoded) if reader is None else reader(encoded)


def mask_secrets(name: str, encoded: Any) -> Any:
    """Mask in JSON what one of Airflow's maskers would, and passwords in URLs."""
    for redact in secrets_masker.maskers():
        encoded = redact(encoded, name, _ANY_DEPTH)
    return _without_passwords(encoded)


def _encode(value: Any) -> Any:
    match value:
        case list():
            return [_encode(item) for item in value]
        case tuple():
            return {TYPE: "tuple", VALUE: [_encode(item) for item in value]}
        case set() | frozenset():
            kind = "frozenset" if isinstance(value, frozenset) else "set"
            return {TYPE: kind, VALUE: sorted((_encode(item) for item in value), key=json.dumps)}
        case dict() if TYPE not in value and all(isinstance(name, str) for name in value):
            return {name: _encode(item) for name, item in value.items()}
        case Decimal():
            return {TYPE: "decimal", VALUE: str(value)}
    return _moment(value) or encode(value)


def _moment(value: Any) -> dict[str, str] | None:
    """Encode a date or moment that `codec` would decode as another class, or in another zone."""
    if type(value) is pendulum.Date:
        return {TYPE: _DATE, VALUE: value.isoformat()}
    if isinstance(value, dt.datetime) and isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        kind = _MOMENT if isinstance(value, pendulum.DateTime) else _ZONED
        return {TYPE: kind, VALUE: value.isoformat(), _ZONE: value.tzinfo.key}
    return None


def _without_passwords(encoded: Any) -> Any:
    match encoded:
        case str():
            return hide_password(encoded)
        case list():
            return [_without_passwords(item) for item in encoded]
        case dict():
            return {hide_password(name): _without_passwords(item) for name, item in encoded.items()}
    return encoded
