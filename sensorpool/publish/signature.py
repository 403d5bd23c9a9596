"""The Celery signature of a callback's task: checked at registration, read when it is sent.

The row keeps what its own application would send, as JSON: the queue of the application's routes, and the options of
task and signature. A part that cannot be kept is refused with one line; no part is left out silently.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.model.callback_messages import FOLLOWING, WAIT_FOR

MAX_BYTES = 64 * 1024
_NAME = 250  # characters of a task's name
_DEPTH = 8  # links of links
_KEYS = frozenset({"task", "args", "kwargs", "options", "subtask_type", "immutable", "chord_size"})
_KEYS_OF_MESSAGE = _KEYS | {"takes"}

RESERVED_HEADERS = frozenset(
    {"args", "argsrepr", "as_execution_options", "called_directly", "callbacks", "chain", "children", "chord", "clear"}
    | {"compression", "correlation_id", "delivery_info", "errbacks", "eta", "expires", "get", "group", "group_index"}
    | {"headers", "hostname", "id", "ignore_result", "is_eager", "kwargs", "kwargsrepr", "lang", "logfile", "loglevel"}
    | {"origin", "parent_id", "properties", "replaced_task_nesting", "reply_to", "retries", "root_id", "shadow"}
    | {"stamped_headers", "stamps", "task", "taskset", "timelimit", "update", "utc"}
)
"""The headers in which Celery sends what it knows of a task: ``task`` would run another one than the message names."""

_LINKS = frozenset({"link", "link_error"})
_FOLLOWING = _LINKS | {"chain", "chord"}  # options that hold signatures
_HELD = {  # the arguments by which these name the tasks that they run; a chord's further kwargs stay empty
    "celery.chain": frozenset({"tasks"}),
    "celery.group": frozenset({"tasks"}),
    "celery.chord": frozenset({"header", "body", "partial_args", "kwargs"}),
}
COMPOSED = frozenset(_HELD)
"""Tasks of Celery's own that run other tasks, and do nothing else."""
OPTIONS = _LINKS | frozenset(
    {"queue", "exchange", "routing_key", "priority", "delivery_mode", "compression", "headers", "ignore_result"}
    | {"task_id", "root_id", "parent_id", "reply_to", "shadow", "argsrepr", "kwargsrepr"}
    | {"countdown", "eta", "expires", "time_limit", "soft_time_limit"}
)
"""The options of a signature with which its task is sent."""
OPTIONS_SENT = OPTIONS | FOLLOWING
"""The options of a message: a chain goes as its first task, with the others behind it."""
SAID = {"serializer": "json"}
"""Options that may be given because they are what is done anyway."""


def kept(signature: Any, settings: Settings) -> dict[str, Any]:
    """Check the signature of a single task; return what is kept of it.

    :param signature: a Celery signature, which its application routes, or the same as a mapping.
    :raises Refused: with a part of a line, which says what is wrong.
    """
    if not isinstance(signature, Mapping) or not isinstance(signature.get("task"), str):
        raise Refused("it must be a Celery signature, like my_task.s()")
    if kind := signature.get("subtask_type"):
        raise Refused(f"it must be one task, not a {printable(str(kind)[:20])}: have the task start it")
    found = {str(name): value for name, value in signature.items() if value is not None}
    for name in found.keys() - _KEYS:
        raise Refused(f"a signature has no {name[:80]!r}")
    if not isinstance(found.get("args", []), list | tuple) or not isinstance(found.get("kwargs", {}), Mapping):
        raise Refused("args must be a list and kwargs an object")
    options = found.get("options", {})
    if not isinstance(options, Mapping):
        raise Refused("its options must be an object")
    known = OPTIONS_SENT if signature["task"] == WAIT_FOR else OPTIONS
    found["options"] = routed(signature, _options(options, known))
    check_allowed(found, settings)
    return found


def check_allowed(message: Mapping[str, Any], settings: Settings) -> None:
    """Check that all tasks that run because of a message are allowed.

    :raises Refused: naming the first one that is not.
    """
    for task in tasks_of(message):
        if not is_allowed(task, settings.on_settled_tasks):
            raise Refused(f"{printable(task[:200])} is not allowed: add it to SENSORPOOL_ON_SETTLED_TASKS")
        if printable(task) != task:
            raise Refused(f"{printable(task[:80])} has a character that no name of a task has")
        if len(task) > _NAME:
            raise Refused(f"{printable(task[:80])}… has a name of more than {_NAME} characters")


def is_allowed(task: str, tasks: Collection[str]) -> bool:
    """Whether a task is among those of the settings: by its name, or by a pattern like ``shop.tasks.*``."""
    return task in tasks or task == WAIT_FOR or any("*" in each and fnmatchcase(task, each) for each in tasks)


def tasks_of(signature: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the tasks that run because of a signature: its own, those of its links, and those that follow it.

    :raises Refused: when one of them is no signature, or too deep.
    """
    if depth > _DEPTH:
        raise Refused(f"its links and steps are more than {_DEPTH} deep")
    task, kind = signature["task"], signature.get("subtask_type")
    if kind and task != f"celery.{kind}":
        # Celery goes by the kind, and not by the task
        raise Refused(f"{printable(task[:80])} of the kind {printable(str(kind)[:20])} cannot be kept")
    _check_parts(signature)
    if task in COMPOSED:
        _refuse_hidden(signature)
    else:
        yield task
    for name, each in _followers(signature):
        if not isinstance(each, Mapping) or not isinstance(each.get("task"), str):
            raise Refused(f"its {name} must be signatures of tasks")
        yield from tasks_of(each, depth + 1)


def _check_parts(signature: Mapping[str, Any]) -> None:
    """Check that Celery finds no task in a signature but its own and its followers.

    :raises Refused: when it has a part of its own, options within its options, or a header that Celery reserves.
    """
    for name in signature.keys() - _KEYS_OF_MESSAGE:
        raise Refused(f"a signature has no {printable(str(name)[:80])!r}")
    options = signature.get("options") or {}
    if not isinstance(options, Mapping) or "options" in options:  # a chain or group takes these instead
        raise Refused("its options must be an object, without options of their own")
    headers = options.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise Refused("headers must be an object")
    if taken := RESERVED_HEADERS & headers.keys():
        raise Refused(f"the header {min(taken)!r} is reserved by Celery: give it another name")


def _refuse_hidden(signature: Mapping[str, Any]) -> None:
    """Refuse arguments by which a chain, a group or a chord would run tasks that `_followers` does not find.

    :raises Refused: when there are some.
    """
    task, named = signature["task"], signature.get("kwargs") or {}
    is_hidden = bool(signature.get("args")) and not signature.get("subtask_type")
    if isinstance(named, Mapping) and named.get("kwargs"):
        raise Refused("the kwargs of a chord cannot be kept: give them to its tasks")
    if is_hidden or not isinstance(named, Mapping) or named.keys() - _HELD[task]:
        raise Refused(f"{task} must name its tasks as Celery does: make it with its application")


def _followers(signature: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what runs after a signature's own task, or because of it; each with the name of its place."""
    options = signature.get("options") or {}
    for name in sorted(_FOLLOWING & options.keys()):
        found = options[name]
        yield from ((name, each) for each in (found if isinstance(found, list | tuple) else [found]))
    named = signature.get("kwargs") or {}
    if signature["task"] in COMPOSED and isinstance(named, Mapping):
        for name in ("tasks", "header", "body"):
            found = named.get(name) or ()
            yield from ((name, each) for each in (found if isinstance(found, list | tuple) else [found]))


def _options(options: Mapping[str, Any], known: Collection[str] = OPTIONS) -> dict[str, Any]:
    """Return options as they are kept. If the broker does not take one, the callback waits with that cause."""
    kept: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or SAID.get(name) == value:
            continue
        if name in known:
            kept[name] = _option(name, value)
        elif (
            known is not OPTIONS_SENT
        ):  # else it is an option of the message that a step came with, and not of its task
            raise Refused(f"the option {str(name)[:80]!r} cannot be kept until the sensor settles")
    return kept


def _option(name: str, value: Any) -> Any:
    if name in _LINKS:
        _check_single(name, value)
    if isinstance(value, datetime):
        return value.isoformat()
    return getattr(value, "name", value)  # kombu's Queue and Exchange have a name


def _check_single(name: str, linked: Any) -> None:
    for each in linked if isinstance(linked, list | tuple) else [linked]:
        options = each.get("options") if isinstance(each, Mapping) else None
        composed = isinstance(options, Mapping) and (options.get("chord") or options.get("chain"))
        if (
            not isinstance(each, Mapping)
            or not isinstance(each.get("task"), str)
            or each.get("subtask_type")
            or composed
        ):
            raise Refused(f"its {name} must be signatures of single tasks")


def routed(signature: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
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
        found = app.amqp.router.route(
            given, signature["task"], signature.get("args") or (), signature.get("kwargs") or {}, task
        )
    except Exception as error:
        raise Refused(f"its application cannot say where it goes: {one_line(error)}") from None
    return _options({name: value for name, value in found.items() if name in OPTIONS_SENT}, OPTIONS_SENT)


def spell(kept: Mapping[str, Any]) -> str:
    """Return what is kept as JSON, as a row keeps it.

    :raises Refused: when JSON cannot say it, or it is too large.
    """
    try:
        text = json.dumps(kept, allow_nan=False, default=_as_celery)
        if "\\ud" in text:  # two halves side by side would come back as another text
            json.dumps(kept, ensure_ascii=False, default=_as_celery).encode()
    except UnicodeEncodeError:
        raise Refused("the signature has a lone surrogate, which UTF-8 cannot say") from None
    except (TypeError, ValueError, RecursionError):
        raise Refused("its arguments must be what Celery's JSON can say") from None
    if len(text) > MAX_BYTES:
        raise Refused("the signature has more than 64 KB")
    return text


def _as_celery(value: Any) -> Any:
    """Return a date, a UUID, a Decimal or the like as Celery's JSON does, so that its task gets the same type.

    :raises TypeError: when Celery's JSON cannot say it.
    """
    from kombu.utils.json import JSONEncoder

    return JSONEncoder().default(value)
