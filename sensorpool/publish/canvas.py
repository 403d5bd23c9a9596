"""Callbacks of a registration: signatures, chains, groups and chords, as the messages that start them.

Celery works a canvas out when it is applied; here it is worked out when it is registered, by the application that it
belongs to: ids, routes, and the chord that a group with a following task is. What is kept are plain messages, so the
pool that sends them needs no result back end and none of the application's code. A chord goes to the task that each
Celery worker has for it, ``celery.chord``.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.callback_messages import Message
from sensorpool.publish import signature as signatures

_MOST = 1_000  # messages of a callback
_CHORD = "celery.chord"
_ROUTING = frozenset({"queue", "exchange", "routing_key", "priority"})
# options of a chord: the ids are its place in another canvas, where Celery has built it into one
_OF_CHORD = _ROUTING | {"task_id", "root_id", "parent_id", "group_id", "group_index"}


def check(callbacks: Mapping[str, Any], settings: Settings) -> str | None:
    """Check the callbacks of a registration; return them as JSON, as the row keeps them; None if there are none.

    :param callbacks: by the name of its argument (`model.callback_messages`) each callback, or None.
    :raises Refused: with one line that says what is wrong.
    """
    kept: dict[str, list[Message]] = {}
    for name, given in callbacks.items():
        if given is None:
            continue
        try:
            kept[name] = [_with_id(message) for message in _messages(given, settings)]
        except Refused as error:
            raise Refused(f"{name}: {error}") from None
    if not kept:
        return None
    try:
        return signatures.spell(kept)
    except Refused as error:
        raise Refused(f"{', '.join(kept)}: {error}") from None


def _messages(given: Any, settings: Settings) -> list[Message]:
    kind = given.get("subtask_type") if isinstance(given, Mapping) else None
    if kind not in _KINDS:
        return [signatures.kept(given, settings)]
    if getattr(given, "app", None) is None or not hasattr(given, "apply_async"):
        raise Refused(f"a {kind} has to be made with its application: chain(one.s(), other.s())")
    try:
        found = _KINDS[kind](given.clone(), settings)  # working it out writes ids into it
    except Refused:
        raise
    except Exception as error:  # Celery's own: no result back end for a chord, an empty chain
        raise Refused(f"Celery cannot start this {kind}: {one_line(error)}") from None
    if not found:
        raise Refused(f"this {kind} is empty")
    if len(found) > _MOST:
        raise Refused(f"this {kind} starts {len(found):,} tasks; {_MOST:,} are allowed")
    return found


def _of_chain(chain: Any, settings: Settings) -> list[Message]:
    """Return the first task of a chain, with the others behind it."""
    options = dict(chain.options)
    arguments = () if chain.immutable else chain.args
    last_id, links, on_error = (options.pop(name, None) for name in ("task_id", "link", "link_error"))
    steps, _ = chain.prepare_steps(arguments, {}, chain.tasks, app=chain.app, last_task_id=last_id, link_error=on_error)
    if not steps:
        return []
    if links:
        steps[0].extend_list_option("link", links)
    first = steps.pop()  # Celery has them in the order in which a worker takes them from the end
    first.options = {**options, **first.options}
    if chain.immutable:
        first.set_immutable(True)
    found = _messages(first, settings)
    if steps:
        if len(found) != 1 or found[0]["task"] == _CHORD:
            raise Refused("what follows its first group belongs to the body of a chord: chord(group, chain(…))")
        rest = _plain(steps)
        found[0]["options"]["chain"] = [*found[0]["options"].get("chain", ()), *rest]
        signatures.check_allowed(found[0], settings)
    return found


def _of_group(group: Any, settings: Settings) -> list[Message]:
    """Return the messages of all tasks of a group."""
    found: list[Message] = []
    for member in group.tasks:
        clone = group.app.signature(member)
        if group.args and not clone.immutable:
            clone.args = (*group.args, *clone.args)
        clone.options = {**group.options, **clone.options}
        clone.options.pop("group_id", None)
        found += _messages(clone, settings)
    return found


def _of_chord(chord: Any, settings: Settings) -> list[Message]:
    """Return the message for ``celery.chord``, a task that each worker has: it needs the worker's result back end."""
    chord.app.backend.ensure_chords_allowed()
    tasks = getattr(chord.tasks, "tasks", chord.tasks)
    given = {name for name, value in chord.options.items() if value is not None and signatures.SAID.get(name) != value}
    if unkept := given - _OF_CHORD:
        raise Refused(f"a chord's {min(unkept)} cannot be kept: set it at its tasks, or at its body")
    body = chord.body
    if body is None:
        raise Refused("a chord has a body: chord(header, body)")
    body.options.setdefault("task_id", str(uuid4()))
    message: Message = {
        "task": _CHORD,
        "args": [],
        "kwargs": {"header": _plain(tasks), "body": _plain(body)},
        "options": {},
        "immutable": bool(chord.immutable),
        "takes": "partial_args",
    }
    if chord.args:
        message["kwargs"]["partial_args"] = _plain(list(chord.args))
    message["options"] = signatures.routed(chord.app.signature(_CHORD), _routing_of(chord.options))
    signatures.check_allowed(message, settings)
    return [message]


_KINDS = {"chain": _of_chain, "group": _of_group, "chord": _of_chord}


def _routing_of(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _ROUTING}


def _with_id(message: Message) -> Message:
    """Give a task its id now, so that what is sent twice has one id."""
    message["options"].setdefault("task_id", str(uuid4()))
    return message


def _plain(value: Any) -> Any:
    """Return signatures as the plain objects that they are in a message."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple) or hasattr(value, "__next__"):
        return [_plain(each) for each in value]
    return value
