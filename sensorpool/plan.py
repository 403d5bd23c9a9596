"""Plan: check a registration before anything is kept, so that bad input is refused whole, with one line."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sensorpool import wire
from sensorpool.errors import Refused
from sensorpool.identity import Identity, identify
from sensorpool.model import LONGEST_SPAN, Key, Milliseconds, Patience, Registration
from sensorpool.poke.classes import Classes, describe
from sensorpool.redaction import printable
from sensorpool.settings import Settings

_KEY_LENGTH = 250


class Plan(NamedTuple):
    """A registration that was checked: nothing in it can be refused any more but for what the database holds."""

    identity: Identity
    key: Key
    patience: Patience
    on_settled: str | None
    external_id: str | None = None
    logical_date: Milliseconds | None = None


_FIELDS = {field.name for field in fields(Registration)} - {"key", "sensor"}
_KEY_FIELDS = frozenset(Key._fields)
_IDS = frozenset(("dag_id", "task_id", "run_id"))


def from_mapping(named: Mapping[str, Any]) -> Registration:
    """Read a registration from a mapping: ``sensor`` (or AIP-17's ``op_classpath``) and the arguments of `register`.

    :raises Refused: when it names something that there is not, or too little.
    """
    if not isinstance(named, Mapping):
        raise Refused("a registration is an object with op_classpath and poke_context")
    rest = dict(named)
    sensor = rest.pop("op_classpath", None) or rest.pop("sensor", None)
    if sensor is None:
        raise Refused("op_classpath is missing")
    if unknown := sorted(str(name) for name in rest.keys() - _FIELDS - _KEY_FIELDS):
        raise Refused(f"there is no field {unknown[0][:80]!r} in a registration")
    parts = {name: value for name in Key._fields if (value := rest.pop(name, None)) is not None}
    ids = len(_IDS & parts.keys())
    if 0 < ids < len(_IDS):
        raise Refused("a key needs dag_id, task_id and run_id: name all three, or none for a fresh one")
    key = Key(**parts) if ids else None
    return Registration(sensor=sensor, key=key, **{name: value for name, value in rest.items() if value is not None})


def plan(registration: Registration, settings: Settings, classes: Classes, *, try_out: bool = True) -> Plan:
    """Check a registration.

    :param try_out: import the class and construct it once, so that a bad argument is refused here.
    :raises Refused: with one line that says what is wrong.
    """
    if isinstance(registration.sensor, str):
        op_classpath, poke_context = registration.sensor, registration.poke_context
    else:
        op_classpath, poke_context = describe(registration.sensor)
        if registration.poke_context is not None:
            raise Refused("a sensor object brings its own poke_context: leave it out")
    op_classpath = classes.allow(op_classpath)
    identity = identify(op_classpath, {} if poke_context is None else poke_context)
    if try_out:
        classes.try_out(op_classpath, json.loads(identity.poke_context))
    key = _check_key(registration.key or Key.fresh(op_classpath.rpartition(".")[2]))
    return Plan(
        identity,
        key,
        _check_patience(registration, settings),
        _check_on_settled(registration, settings),
        _check_external_id(registration.external_id),
        _check_date(registration.logical_date),
    )


def _check_external_id(external_id: str | None) -> str | None:
    if external_id is not None and (not isinstance(external_id, str) or not 0 < len(external_id) <= 64):
        raise Refused("external_id must be a string of at most 64 characters")
    if external_id is not None and printable(external_id) != external_id:
        raise Refused("external_id has a control character")
    return external_id


def _check_key(key: Key) -> Key:
    for name in ("dag_id", "task_id", "run_id"):
        value = getattr(key, name)
        if not isinstance(value, str) or not value:
            raise Refused(f"{name} must be a non-empty string")
        if len(value) > _KEY_LENGTH:
            raise Refused(f"{name} has {len(value)} characters; {_KEY_LENGTH} are allowed")
        if "\x00" in value:
            raise Refused(f"{name} has a NUL character")
        if value != value.strip():  # MySQL takes 'a' and 'a ' for the same
            raise Refused(f"{name} begins or ends with a space")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Refused(f"{name} has a lone surrogate, which UTF-8 cannot say") from None
        if printable(value) != value:  # it would forge lines of logs, and give terminals orders
            raise Refused(f"{name} has a control character")
    for name, least in (("map_index", -1), ("try_number", 0)):
        value = getattr(key, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise Refused(f"{name} must be a whole number of at least {least}")
    return key


def _check_date(logical_date: Any) -> Milliseconds | None:
    """Check a date, which a line of JSON spells as ISO 8601 does."""
    if logical_date is None:
        return None
    try:
        found = datetime.fromisoformat(logical_date) if isinstance(logical_date, str) else logical_date
        return round(found.timestamp() * 1000)
    except (AttributeError, ValueError, OverflowError):
        raise Refused("logical_date must be a date and time, like 2030-01-31T12:00:00+00:00") from None


def _check_patience(registration: Registration, settings: Settings) -> Patience:
    given = (
        registration.poke_interval,
        registration.timeout,
        registration.execution_timeout,
        registration.exponential_backoff,
        registration.max_wait,
        registration.soft_fail,
        registration.silent_fail,
        registration.never_fail,
    )
    try:
        return _patience(settings.poke_interval, settings.timeout, *given)
    except TypeError:  # something in it cannot be looked up
        return _patience.__wrapped__(settings.poke_interval, settings.timeout, *given)


@lru_cache(maxsize=1_000, typed=True)
def _patience(default_poke_interval: float, default_timeout: float, *given: Any) -> Patience:
    """Check how to wait; nearly all who register wait alike."""
    named = dict(zip(Patience._fields, given, strict=True))
    patience = Patience(
        poke_interval=_span("poke_interval", named["poke_interval"], default_poke_interval),
        timeout=_span("timeout", named["timeout"], default_timeout, zero=True),
        execution_timeout=_span("execution_timeout", named["execution_timeout"], None, zero=True),
        max_wait=_span("max_wait", named["max_wait"], None),
        **{
            name: _flag(name, named[name]) for name in ("soft_fail", "silent_fail", "never_fail", "exponential_backoff")
        },
    )
    if patience.soft_fail and patience.never_fail:  # Airflow's rule, and its words
        raise Refused("soft_fail and never_fail are mutually exclusive: set one of them")
    return patience


def _span(name: str, value: Any, default: float | None, *, zero: bool = False) -> Any:
    """Check a span of seconds; a timedelta is one too."""
    if value is None:
        return default
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"{name} must be a number of seconds")
    if value < 0 or (value == 0 and not zero) or value > LONGEST_SPAN:
        raise Refused(f"{name} must be {'at least' if zero else 'more than'} 0 and at most ten years, in seconds")
    return float(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{name} must be true or false")
    return value


def _check_on_settled(registration: Registration, settings: Settings) -> str | None:
    signature = registration.on_settled
    if signature is None:
        return None
    if not isinstance(signature, Mapping) or not isinstance(signature.get("task"), str):
        raise Refused("on_settled must be a Celery signature, like my_task.s()")
    if signature["task"] not in settings.on_settled_tasks:
        raise Refused(f"on_settled: {signature['task'][:200]} is not allowed: add it to SENSORPOOL_ON_SETTLED_TASKS")
    _check_options(signature.get("options"))
    try:
        text = json.dumps(dict(signature), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise Refused("on_settled: its arguments must be JSON") from None
    if len(text) > 64 * 1024:
        raise Refused("on_settled: the signature has more than 64 KB")
    return text


def _check_options(options: Any) -> None:
    """Refuse what no task could be sent with: it would be found out when the sensor ends."""
    if options is None:
        return
    if not isinstance(options, Mapping):
        raise Refused("on_settled: its options must be an object")
    for name in wire.SIGNATURE_OPTIONS & options.keys():
        value, whole = options[name], isinstance(options[name], int) and not isinstance(options[name], bool)
        if value is None:
            continue
        if name == "priority" and not (whole and 0 <= value <= 255):
            raise Refused("on_settled: priority must be a whole number of 0 to 255")
        span = (whole or isinstance(value, float)) and -LONGEST_SPAN <= value <= LONGEST_SPAN
        if name in {"countdown", "expires"} and not (span or (name == "expires" and _is_time(value))):
            raise Refused(f"on_settled: {name} must be a number of seconds, of ten years at most")
        if name in {"queue", "routing_key", "exchange"} and not (isinstance(value, str) and len(value) <= 255):
            raise Refused(f"on_settled: {name} must be a name of at most 255 characters")


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False
