"""What an overlay's values must be: those with which ticks go on, and of the types that Celery counts on.

Celery itself would start with them, and send jobs that no worker takes, or end with a traceback.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta, tzinfo
from types import SimpleNamespace
from typing import Any

from celery.app.annotations import prepare, resolve_all
from celery.app.defaults import NAMESPACES, Option
from celery.beat import ScheduleEntry
from celery.utils.time import timezone

from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.publish import wire

_OUR_TASKS = (wire.POKE_SHARD, wire.RESCUE)
_OF_OUR_TASKS = frozenset({"rate_limit", "time_limit", "soft_time_limit", "serializer"})
_JSON = frozenset({"json", "application/json"})
_NUMBERS = frozenset({"int", "float"})


def checked(where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an overlay; a number or a truth value that is a text, as from the environment, is read.

    :param where: the overlay, for error messages.
    :raises SettingsError: with the setting's name, and what is wrong.
    """
    read: dict[str, Any] = {}
    for name, value in values.items():
        try:
            read[name] = _read(name, value)
            for problem in _problems(name, read[name]):
                raise SettingsError(f"{where}: {problem}")
        except (TypeError, ValueError, LookupError, OverflowError, AttributeError, ImportError) as error:
            raise SettingsError(f"{where}: {name} cannot be {_shown(value)}: {one_line(error)}") from None
    return read


def _read(name: str, value: Any) -> Any:
    """Return a value as its type in Celery.

    :raises ValueError: when it is not of that type; others by the same conversion.
    """
    kind = _kind(name)
    if isinstance(value, str) and kind in {*_NUMBERS, "bool"}:
        return Option(type=kind).to_python(value)
    if kind in _NUMBERS and value is not None and not isinstance(value, timedelta):
        float(value)
    return value


def _kind(name: str) -> str | None:
    """Return the type of a setting as Celery names it; None for one that it does not have."""
    option = NAMESPACES.get(name)
    if option is None:
        group, _, rest = name.partition("_")
        option = (NAMESPACES.get(group) or {}).get(rest)
    kind = getattr(option, "type", None)
    return kind if isinstance(kind, str) else None


def _problems(name: str, value: Any) -> Iterator[str]:
    match name:
        case "task_serializer" if value not in _JSON:
            yield f"{name} is {_shown(value)}, and workers take jobs in JSON only: leave it out"
        case "accept_content" if not value or isinstance(value, str) or not _JSON.issuperset(value):
            yield f"{name} is {_shown(value)}, and the pool's messages are JSON only: leave it out"
        case "task_always_eager" if value:
            yield f"{name} would have beat run the jobs itself: leave it out"
        case "task_default_rate_limit" if value is not None:
            yield f"{name} would hold up the ticks: leave it out, and give other tasks their own rate_limit"
        case "task_annotations":
            for task in _OUR_TASKS:
                for set_by_it in resolve_all(prepare(value), SimpleNamespace(name=task)):
                    for key in sorted(_OF_OUR_TASKS & set_by_it.keys()):
                        yield f"{name} sets {key} of {task}: leave it out, and name other tasks instead of *"
        case "timezone" if value is not None and not isinstance(timezone.get_timezone(value), tzinfo):
            yield f"{name} is no time zone: {_shown(value)}"
        case "beat_schedule":
            for entry, given in value.items():
                if (problem := _problem_of_entry(given)) is not None:
                    yield f"{name}: the entry {printable(str(entry))[:100]} {problem}"


def _problem_of_entry(given: Any) -> str | None:
    if isinstance(given, ScheduleEntry):
        return None
    if not isinstance(given, Mapping) or not isinstance(given.get("task"), str):
        return "is no mapping with a task"
    when = given.get("schedule")
    with suppress(OverflowError, TypeError, ValueError):
        if isinstance(when, int | float | timedelta):
            seconds = when.total_seconds() if isinstance(when, timedelta) else when
            when = timedelta(seconds=seconds) if math.isfinite(seconds) and seconds > 0 else None
    if not isinstance(when, timedelta) and not hasattr(when, "is_due"):
        return f"has no schedule of seconds, nor a crontab: {_shown(given.get('schedule'))}"
    if not isinstance(given.get("options") or {}, Mapping):
        return f"has options that are no mapping: {_shown(given['options'])}"
    try:
        ScheduleEntry(**{**given, "name": "", "schedule": when if isinstance(when, timedelta) else timedelta(1)})
    except Exception as error:
        return f"cannot be used: {one_line(error)}"
    return None


def _shown(value: Any) -> str:
    return printable(repr(value))[:60]
