"""Check a registration before any row is written, so that bad input is refused as a whole, with one line."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sensorpool.client.sensor_object import describe, path_of
from sensorpool.config.defaults import PATH_SENSOR
from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import printable
from sensorpool.model.backend import NO_BACKEND, backend_named, backend_of
from sensorpool.model.callback_messages import ON_FAILURE, ON_SETTLED, ON_SUCCESS
from sensorpool.model.execution_context import ExecutionContext
from sensorpool.model.identity import Identity, identify
from sensorpool.model.location import location_named
from sensorpool.model.usual_landing import family_code
from sensorpool.model.values import LONGEST_SPAN, Key, Milliseconds, Registration
from sensorpool.model.words import nearest
from sensorpool.poke.classes import Classes, SensorClass
from sensorpool.publish import canvas

KEY_LENGTH = 250
_EXTERNAL_ID_LENGTH = 64
_SPANS = ("poke_interval", "timeout", "execution_timeout", "max_wait")
_FLAGS = ("exponential_backoff", "soft_fail", "silent_fail", "never_fail")
_NAMES = {field.name for field in fields(Registration)} - {"key", "sensor"} | set(Key._fields)
_parse = json.JSONDecoder().raw_decode  # of a text that we wrote: `json.loads` first looks for its encoding and spaces


class CheckedRegistration(NamedTuple):
    """A checked registration: only existing rows of the database can be a reason to refuse it."""

    identity: Identity
    key: Key
    is_fresh: bool  # the key was made here, so no other try can be registered under it
    execution_context: ExecutionContext
    on_settled: str | None  # JSON text
    external_id: str | None
    logical_date: Milliseconds | None
    family: int | None = None  # None: the condition is a series of its own
    backend: str | None = None  # None: its class stands for it
    location: str | None = None  # None: no wake-up finds it by its location


def from_mapping(named: Mapping[str, Any]) -> Registration:
    """Read a registration from a mapping: ``sensor`` (or AIP-17's ``op_classpath``) and the arguments of `register`.

    :raises Refused: when it has an unknown name, or lacks a required one.
    """
    if not isinstance(named, dict | Mapping):  # dict first: its check is quick
        raise Refused("a registration is an object with op_classpath and poke_context")
    rest = dict(named)
    sensor = rest.pop("op_classpath", None) or rest.pop("sensor", None)
    if sensor is None:
        raise Refused("op_classpath is missing")
    if unknown := rest.keys() - _NAMES:
        name = min(map(str, unknown))[:80]
        raise Refused(f"there is no field {name!r} in a registration{nearest(name, _NAMES)}")
    given = {name: value for name, value in rest.items() if value is not None}
    key = key_of(**{name: given.pop(name, None) for name in Key._fields})
    return Registration(sensor=sensor, key=key, **given)


def key_of(
    *,
    dag_id: str | None = None,
    task_id: str | None = None,
    run_id: str | None = None,
    map_index: int | None = None,
    try_number: int | None = None,
) -> Key | None:
    """Return the named key, or None if there is none: then a fresh key is made.

    :raises Refused: when a part of it is missing.
    """
    if dag_id is None and task_id is None and run_id is None:
        if map_index not in (None, -1) or try_number not in (None, 1):
            raise Refused("map_index and try_number belong to a key: name dag_id, task_id and run_id, too")
        return None
    if dag_id is None or task_id is None or run_id is None:
        raise Refused("a key needs dag_id, task_id and run_id: name all three, or none for a fresh one")
    return Key(
        dag_id=dag_id,
        task_id=task_id,
        run_id=run_id,
        map_index=-1 if map_index is None else map_index,
        try_number=1 if try_number is None else try_number,
    )


def check(registration: Registration, settings: Settings, classes: Classes, *, try_out: bool) -> CheckedRegistration:
    """Check a registration.

    :param try_out: import the class and construct it once, so that a bad argument is refused here.
    :raises Refused: with one line that says what is wrong.
    """
    op_classpath, poke_context = condition(registration.sensor, registration.poke_context)
    op_classpath = classes.allow(op_classpath)
    identity = identify(op_classpath, {} if poke_context is None else poke_context)
    if registration.external_id is not None:
        check_name("external_id", registration.external_id, _EXTERNAL_ID_LENGTH)
    if try_out:
        classes.try_out(op_classpath, _parse(identity.poke_context)[0])
    return CheckedRegistration(
        identity=identity,
        key=_check_key(Key.fresh(op_classpath.rpartition(".")[2]) if registration.key is None else registration.key),
        is_fresh=registration.key is None,
        execution_context=_execution_context(registration, settings),
        on_settled=_callbacks(registration, settings),
        external_id=registration.external_id,
        logical_date=_milliseconds(registration.logical_date),
        family=_family(op_classpath, registration.family),
        backend=_backend(registration.backend, classes.known(op_classpath), identity.poke_context),
        location=_location(registration.location, classes.known(op_classpath), identity.poke_context),
    )


def condition(sensor: object, poke_context: Any) -> tuple[str, Any]:
    """Return the class path and the poke_context of a sensor, however it is named.

    :raises Refused: when it is no sensor, or its class has no path; or an object comes with a poke_context.
    """
    if isinstance(sensor, str):
        return sensor, poke_context
    if isinstance(sensor, type):
        return path_of(sensor), poke_context
    described = (PATH_SENSOR, {"path": sensor}) if isinstance(sensor, os.PathLike) else describe(sensor)
    if poke_context is not None:
        raise Refused("a sensor object brings its own poke_context: leave it out")
    return described


def _callbacks(registration: Registration, settings: Settings) -> str | None:
    if registration.on_settled is registration.on_success is registration.on_failure is None:
        return None  # nearly all
    given = {name: getattr(registration, name) for name in (ON_SETTLED, ON_SUCCESS, ON_FAILURE)}
    return canvas.check(given, settings)


def _check_key(key: Any) -> Key:
    if not isinstance(key, Key):
        raise Refused(f"key must be a sensorpool.Key of dag_id, task_id and run_id, not {printable(repr(key))[:80]}")
    check_name("dag_id", key.dag_id)
    check_name("task_id", key.task_id)
    check_name("run_id", key.run_id)
    _check_whole_number("map_index", key.map_index, -1)
    _check_whole_number("try_number", key.try_number, 0)
    return key


def check_name(name: str, value: Any, longest: int = KEY_LENGTH) -> None:
    """Check a part of a key: other text could forge lines of logs, control terminals, or be unknown to a database.

    :raises Refused: when it is no text of 1 to so many printable characters, without spaces around it.
    """
    is_text = isinstance(value, str) and 0 < len(value) <= longest and value == value.strip()
    if is_text and ((value.isascii() and value.isprintable()) or printable(value) == value):
        return
    shown = printable(repr(value))[:80]
    raise Refused(f"{name} must be a text of 1 to {longest} printable characters without spaces around it, not {shown}")


def _check_whole_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise Refused(f"{name} must be a whole number of at least {least}")


def _family(op_classpath: str, family: Any) -> int | None:
    if family is None:
        return None
    if not isinstance(family, str) or not family:
        raise Refused("family must be a non-empty string: the name of a series of conditions")
    return family_code(op_classpath, family)


def _backend(given: Any, sensor_class: SensorClass | None, poke_context: str) -> str | None:
    if given is not None:
        if (name := backend_named(given)) is None:
            raise Refused("backend must be a string with printable characters: the name of what the pokes ask")
        return name
    named = None
    if sensor_class is not None and sensor_class.names_backend is not None:
        named = sensor_class.backend_of(_parse(poke_context)[0])
    return named or (None if (found := backend_of(poke_context)) == NO_BACKEND else found)


def _location(given: Any, sensor_class: SensorClass | None, poke_context: str) -> str | None:
    if given is not None:
        if (where := location_named(given)) is None:
            raise Refused("location must be a URL like s3://bucket/folder/name: of what the sensor waits for")
        return where
    if sensor_class is None or sensor_class.names_location is None:
        return None
    return sensor_class.location_of(_parse(poke_context)[0])


def _milliseconds(logical_date: Any) -> Milliseconds | None:
    """Check a date, which a line of JSON has as ISO 8601."""
    if logical_date is None:
        return None
    try:
        found = datetime.fromisoformat(logical_date) if isinstance(logical_date, str) else logical_date
        has_zone, milliseconds = found.utcoffset() is not None, round(found.timestamp() * 1000)
    except (AttributeError, ValueError, OverflowError):
        raise Refused("logical_date must be a date and time, like 2030-01-31T12:00:00+00:00") from None
    if not has_zone:  # it would be of the zone of this machine, and another time on the next
        raise Refused("logical_date has no time zone: give it one, like 2030-01-31T12:00:00+00:00")
    return milliseconds


def _execution_context(registration: Registration, settings: Settings) -> ExecutionContext:
    defaults = {"poke_interval": settings.poke_interval, "timeout": settings.timeout}
    given = {name: getattr(registration, name) for name in (*_SPANS, *_FLAGS)}
    given |= {name: default for name, default in defaults.items() if given[name] is None}
    try:
        return _check_execution_context(**given)
    except TypeError:  # a value that cannot be looked up
        return _check_execution_context.__wrapped__(**given)


@lru_cache(maxsize=1_000, typed=True)
def _check_execution_context(**given: Any) -> ExecutionContext:
    """Check an execution context. Cached, because nearly all registrations have the same one."""
    found: dict[str, Any] = {name: _flag(name, given[name]) for name in _FLAGS}
    for name in _SPANS:
        if given[name] is not None:
            found[name] = _seconds(name, given[name], zero="timeout" in name)
    checked = ExecutionContext(**found)
    if checked.soft_fail and checked.never_fail:  # Airflow's rule, and its words
        raise Refused("soft_fail and never_fail are mutually exclusive: set one of them")
    return checked


def _seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """Check a span of seconds, or a timedelta."""
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):  # a large int would overflow
        raise Refused(f"{name} must be a number of seconds")
    if value < 0 or (value == 0 and not zero) or value > LONGEST_SPAN:
        raise Refused(f"{name} must be {'at least' if zero else 'more than'} 0 and at most ten years, in seconds")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if value is None:  # left out
        return False
    if not isinstance(value, bool):
        raise Refused(f"{name} must be true or false")
    return value
