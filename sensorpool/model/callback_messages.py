"""What a row says of the callbacks of an instance: which Celery tasks are sent when it ends, and how.

A row holds the messages by the end that they are for: ``on_settled``, ``on_success`` and ``on_failure``.
"""

from typing import Any

from sensorpool.model.json_text import read_json
from sensorpool.model.states import State

WAIT_FOR = "sensorpool.wait_for"  # a task of the user's application: `sensorpool.canvas`
ON_SETTLED, ON_SUCCESS, ON_FAILURE = _ENDS = "on_settled", "on_success", "on_failure"

FOLLOWING = frozenset({"chain", "chord", "group_id", "group_index"})  # options of a message that canvases become

Message = dict[str, Any]
"""A task as it is sent: task, args, kwargs, options, immutable; ``takes`` names a keyword for the result."""


def messages(text: str | None, state: str) -> list[Message]:
    """Return the messages that are sent when an instance ends.

    :param text: of its row, which may have been edited by hand.
    :raises ValueError: when it holds no callbacks.
    """
    if text is None:
        return []
    named = read_json(text)
    if not isinstance(named, dict) or not named or named.keys() - _ENDS:
        raise ValueError("no callbacks")
    wanted = (ON_SETTLED, ON_SUCCESS if state == State.SUCCESS else ON_FAILURE)
    found = [each for name in wanted for each in _list(named.get(name, []))]
    if not all(isinstance(each, dict) and isinstance(each.get("task"), str) for each in found):
        raise ValueError("a callback is no signature")
    return found


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


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("no list of callbacks")
    return value
