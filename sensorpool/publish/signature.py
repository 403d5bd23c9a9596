"""A Celery signature for `on_settled`: checked at registration, read when it is sent.

The row keeps what its own application would send, as JSON: the queue of the application's routes, and the options of
task and signature. A part that cannot be kept is refused with one line; no part is left out silently.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.model.identity import has_half_characters
from sensorpool.model.json_text import read_json
from sensorpool.model.values import LONGEST_SPAN

MAX_BYTES = 64 * 1024
_NAME = 250  # characters of a task's name
_DEPTH = 8  # links of links
_KEYS = frozenset({"task", "args", "kwargs", "options", "subtask_type", "immutable", "chord_size"})

_TEXTS = frozenset(
    {"queue", "exchange", "routing_key", "task_id", "root_id", "parent_id", "reply_to", "shadow"}
    | {"argsrepr", "kwargsrepr", "compression"}
)
_SPANS = frozenset({"countdown", "expires", "time_limit", "soft_time_limit"})
_TIMES = frozenset({"eta", "expires"})
_LINKS = frozenset({"link", "link_error"})
_WHOLE = {"priority": (0, 255), "delivery_mode": (1, 2)}
OPTIONS = _TEXTS | _SPANS | _TIMES | _LINKS | _WHOLE.keys() | {"headers", "ignore_result"}
"""The options of a signature with which an ``on_settled`` task is sent."""
_SAID = {"serializer": "json"}  # options that may be given because they are what is done anyway


def check(signature: Any, settings: Settings) -> str:
    """Check a signature; return it as JSON, as the row keeps it.

    :param signature: a Celery signature, which its application routes, or the same as a mapping.
    :raises Refused: with one line that says what is wrong.
    """
    if not isinstance(signature, Mapping) or not isinstance(signature.get("task"), str):
        raise Refused("on_settled must be a Celery signature, like my_task.s()")
    if kind := signature.get("subtask_type"):
        raise Refused(f"on_settled must be one task, not a {printable(str(kind)[:20])}: have the task start it")
    kept = {str(name): value for name, value in signature.items() if value is not None}
    for name in kept.keys() - _KEYS:
        raise Refused(f"on_settled: a signature has no {name[:80]!r}")
    if not isinstance(kept.get("args", []), list | tuple) or not isinstance(kept.get("kwargs", {}), Mapping):
        raise Refused("on_settled: args must be a list and kwargs an object")
    options = kept.get("options", {})
    if not isinstance(options, Mapping):
        raise Refused("on_settled: its options must be an object")
    kept["options"] = _routed(signature, _options(options))
    for task in tasks_of(kept):
        if task not in settings.on_settled_tasks:
            raise Refused(f"on_settled: {printable(task[:200])} is not allowed: add it to SENSORPOOL_ON_SETTLED_TASKS")
        if len(task) > _NAME:
            raise Refused(f"on_settled: {printable(task[:80])}… has a name of more than {_NAME} characters")
    return _spell(kept)


def read(text: str) -> dict[str, Any] | None:
    """Read a signature of a row; None if the text is no signature."""
    signature = read_json(text)
    return signature if isinstance(signature, dict) and isinstance(signature.get("task"), str) else None


def tasks_of(signature: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the tasks that run because of a signature: its own task, and the tasks of its links.

    :raises Refused: when a link is no signature, or too deep.
    """
    if depth > _DEPTH:
        raise Refused(f"on_settled: its links are more than {_DEPTH} deep")
    yield signature["task"]
    options = signature.get("options") or {}
    for name in sorted(_LINKS & options.keys()) if isinstance(options, Mapping) else ():
        linked = options[name]
        for each in linked if isinstance(linked, list | tuple) else [linked]:
            if not isinstance(each, Mapping) or not isinstance(each.get("task"), str) or each.get("subtask_type"):
                raise Refused(f"on_settled: its {name} must be signatures of single tasks")
            yield from tasks_of(each, depth + 1)
            for other in ("chord", "chain"):
                if isinstance(each.get("options"), Mapping) and each["options"].get(other):
                    raise Refused(f"on_settled: its {name} must be signatures of single tasks")


def not_allowed(signature: Mapping[str, Any], tasks: Collection[str]) -> str | None:
    """Return the first task of a signature that is not among ``tasks``; None if all are."""
    try:
        return next((task for task in tasks_of(signature) if task not in tasks), None)
    except Refused as error:
        return str(error)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options now, because a task with wrong options would fail only when the sensor has settled."""
    kept: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or _SAID.get(name) == value:
            continue
        if name not in OPTIONS:
            raise Refused(f"on_settled: the option {str(name)[:80]!r} cannot be kept until the sensor settles")
        kept[name] = _option(name, value)
    return kept


def _option(name: str, value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in _WHOLE:
        low, high = _WHOLE[name]
        if not (whole and low <= value <= high):
            raise Refused(f"on_settled: {name} must be a whole number of {low} to {high}")
    elif name in _TIMES and (text := _time(value)) is not None:
        return text
    elif name in _SPANS:
        if not ((whole or isinstance(value, float)) and -LONGEST_SPAN <= value <= LONGEST_SPAN):
            raise Refused(f"on_settled: {name} must be a number of seconds, of ten years at most")
    elif name in _TIMES:
        raise Refused(f"on_settled: {name} must be a time like 2030-01-31T12:00:00+00:00")
    elif name in _TEXTS:
        value = getattr(value, "name", value)  # kombu's Queue and Exchange have a name
        if not (isinstance(value, str) and len(value) <= 255):
            raise Refused(f"on_settled: {name} must be a name of at most 255 characters")
    elif name == "headers":
        if not isinstance(value, Mapping):
            raise Refused("on_settled: headers must be an object")
    elif name == "ignore_result" and not isinstance(value, bool):
        raise Refused("on_settled: ignore_result must be true or false")
    return value


def _time(value: Any) -> str | None:
    """Spell a time as Celery does."""
    try:
        if isinstance(value, datetime):
            return value.isoformat()
        return value if isinstance(value, str) and datetime.fromisoformat(value) is not None else None
    except ValueError:
        return None


def _routed(signature: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Add what the signature's own application would add: the options of its task, and the queue of its routes.

    A mapping has no application; it goes to `Settings.on_settled_queue` unless it names a queue.
    """
    try:
        app = getattr(signature, "app", None)
        if app is None:
            return options
        task = app.tasks.get(signature["task"])
        of_task = task._get_exec_options() if task is not None else {}
        merged = {name: value for name, value in of_task.items() if value is not None and name in OPTIONS} | options
        if task is not None and task.ignore_result is not None:
            merged.setdefault("ignore_result", task.ignore_result)
        given = dict(merged)
        routed = app.amqp.router.route(
            given, signature["task"], signature.get("args") or (), signature.get("kwargs") or {}, task
        )
    except Exception as error:
        raise Refused(f"on_settled: its application cannot say where it goes: {one_line(error)}") from None
    return _options({name: value for name, value in routed.items() if name in OPTIONS})


def _spell(kept: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(kept, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise Refused("on_settled: its arguments must be JSON") from None
    if has_half_characters(kept, text):
        raise Refused("on_settled: the signature has a lone surrogate, which UTF-8 cannot say")
    if len(text) > MAX_BYTES:
        raise Refused("on_settled: the signature has more than 64 KB")
    return text
