"""What a row says of the callbacks of an instance: which Celery tasks are sent when it ends, and how.

A row with one ``on_settled`` task holds its signature. One with more, or with one that depends on the end, holds an
object that the version before takes for a task that it may not send, so that it leaves it to this version.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sensorpool.model.json_text import read_json
from sensorpool.model.states import State

WAIT_FOR = "sensorpool.wait_for"  # a task of the user's application: `sensorpool.canvas`
ENDED = "sensorpool.ended"  # no application has such a task
ON_SETTLED, ON_SUCCESS, ON_FAILURE = "on_settled", "on_success", "on_failure"

FOLLOWING = frozenset({"chain", "chord", "group_id", "group_index"})  # options that the version before does not send

Message = dict[str, Any]
"""A task as it is sent: task, args, kwargs, options, immutable; ``takes`` names a keyword for the result."""


def composed(callbacks: Mapping[str, Sequence[Message]]) -> Message:
    """Return the object that a row holds.

    :param callbacks: by `ON_SETTLED`, `ON_SUCCESS` or `ON_FAILURE` the messages to be sent.
    """
    if callbacks.keys() == {ON_SETTLED} and len(callbacks[ON_SETTLED]) == 1:
        [message] = callbacks[ON_SETTLED]
        if "takes" not in message and not FOLLOWING & message.get("options", {}).keys():
            return message
    return {"task": ENDED, "kwargs": {name: list(messages) for name, messages in callbacks.items()}}


def messages(text: str | None, state: str) -> list[Message]:
    """Return the messages that are sent when an instance ends.

    :param text: of its row, which may have been edited by hand.
    :raises ValueError: when it holds no callbacks.
    """
    if text is None:
        return []
    found = read_json(text)
    if not isinstance(found, dict) or not isinstance(found.get("task"), str):
        raise ValueError("no signature")
    if found["task"] != ENDED:
        return [found]
    return _of_end(found.get("kwargs"), state)


def has_some(text: str, state: str) -> bool:
    """Whether callbacks are to be sent when an instance ends: True for a garbled text, which has to be told."""
    try:
        return bool(messages(text, state))
    except ValueError:
        return True


def shown(text: str, state: str) -> str:
    """Return the names of the tasks that are sent, for people; of an instance that waits, of all that may be."""
    try:
        ends = (State.SUCCESS, State.FAILED) if state == State.SENSING else (state,)
        return ", ".join(dict.fromkeys(message["task"][:200] for end in ends for message in messages(text, end)))
    except ValueError:
        return "?"


def _of_end(named: Any, state: str) -> list[Message]:
    wanted = (ON_SETTLED, ON_SUCCESS if state == State.SUCCESS else ON_FAILURE)
    if not isinstance(named, dict):
        raise ValueError("no callbacks")
    found = [each for name in wanted for each in named.get(name) or ()]
    if not all(isinstance(each, dict) and isinstance(each.get("task"), str) for each in found):
        raise ValueError("a callback is no signature")
    return found
