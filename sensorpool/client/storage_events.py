"""Events of object stores, read as they come: which objects are new.

S3's notifications and those of EventBridge, as they are, or within messages of SNS and SQS; Cloud Storage's, as Pub/Sub
pushes or Eventarc sends them. Beside them wake-ups as JSON: ``{"prefix": …}``, ``{"location": …}`` and
``{"op_classpath": …, "poke_context": {…}}``, one or a list.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from sensorpool.client.wake import WakeUp, wake_up
from sensorpool.errors import Refused
from sensorpool.model.location import location_named

LONGEST = 262_144  # bytes, as SQS and SNS have them
MOST = 1_000  # wake-ups of one message
_DEEPEST = 16  # values within values, of messages within messages
_OWN = frozenset({"op_classpath", "poke_context", "prefix", "location"})
_GONE = (
    *("ObjectRemoved", "Object Deleted", "OBJECT_DELETE", "OBJECT_ARCHIVE", "LifecycleExpiration"),
    *("storage.object.v1.deleted", "storage.object.v1.archived"),
)
_SUBSCRIPTION = "SubscriptionConfirmation"


class Subscription(NamedTuple):
    """A question of SNS whether it may send here, and what it is answered with."""

    topic: str
    token: str


def read(text: str | bytes, kind: str = "") -> list[WakeUp]:
    """Return the wake-ups of a message; those of objects that are gone are left out.

    :param kind: what the header `ce-type` says, of a message of Eventarc.
    :raises Refused: when it is none of these, or too long.
    """
    if len(text) > LONGEST:
        raise Refused(f"a message has at most {LONGEST:,} bytes")
    if _is_gone(kind):
        return []
    try:
        found: list[WakeUp] = []
        for each in _wake_ups(_parsed(text), 0):
            found.append(each)
            if len(found) > MOST:
                raise Refused(f"a message names at most {MOST:,} objects")
        return found
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"this is no event of a bucket, and no wake-up ({type(error).__name__})") from None


def subscription(text: str | bytes) -> Subscription | None:
    """Return what a subscription of SNS is confirmed with, if a message asks for that.

    Nothing here confirms it: an operator does.
    """
    try:
        message = _parsed(text)
    except Refused:
        return None
    if not isinstance(message, dict) or message.get("Type") != _SUBSCRIPTION:
        return None
    topic, token = message.get("TopicArn"), message.get("Token")
    return Subscription(topic, token) if isinstance(topic, str) and isinstance(token, str) else None


def _wake_ups(message: Any, depth: int) -> Iterator[WakeUp]:
    if depth > _DEEPEST:
        raise Refused("a message lies within too many others")
    if isinstance(message, str | bytes):
        yield from _wake_ups(_parsed(message), depth + 1)
    elif isinstance(message, list):
        for each in message:
            yield from _wake_ups(each, depth + 1)
    elif not isinstance(message, dict):
        raise Refused("a message is a JSON object, or a list of them")
    elif message.keys() & _OWN:
        if unknown := message.keys() - _OWN:
            raise Refused(f"a wake-up has no field {min(unknown)[:80]!r}")
        yield wake_up(**message)
    elif (within := _within(message)) is not None:
        yield from _wake_ups(within, depth + 1)
    else:
        yield from _objects(message)


def _within(message: Mapping[str, Any]) -> Any:
    """Return the message that another one carries; None: it carries none."""
    if message.get("Type") in {_SUBSCRIPTION, "UnsubscribeConfirmation"} or message.get("Event") == "s3:TestEvent":
        return []
    for name in ("Records", "Messages", "receivedMessages"):
        if isinstance(message.get(name), list):
            return message[name]
    for name in ("Message", "Body", "body"):  # SNS; SQS by its API, and by Lambda's
        if isinstance(message.get(name), str):
            return message[name]
    inner = message.get("message")
    return inner if isinstance(inner, dict) else None


def _objects(message: Mapping[str, Any]) -> Iterator[WakeUp]:
    """Yield the wake-up of the object that an event names."""
    if "s3" in message:  # a record of S3's notification; its keys are spelt as in a URL
        kind, where = message.get("eventName", ""), message["s3"]
        found = f"s3://{where['bucket']['name']}/{unquote_plus(where['object']['key'])}"
    elif "detail" in message:  # EventBridge
        kind, where = message.get("detail-type", ""), message["detail"]
        found = f"s3://{where['bucket']['name']}/{where['object']['key']}"
    elif "attributes" in message and "bucketId" in message["attributes"]:  # Pub/Sub
        kind, where = message["attributes"].get("eventType", ""), message["attributes"]
        found = f"gs://{where['bucketId']}/{where['objectId']}"
    elif "data" in message and isinstance(message["data"], str):  # Pub/Sub, without attributes
        yield from _wake_ups(_parsed(_decoded(message["data"])), _DEEPEST)
        return
    else:  # Eventarc: the object itself
        kind, found = "", f"gs://{message['bucket']}/{message['name']}"
    # one odd name, which no condition can wait for, must not keep the others of its message back
    if not _is_gone(kind) and location_named(found) is not None:
        yield wake_up(location=found)


def _is_gone(kind: object) -> bool:
    return any(each in str(kind) for each in _GONE)


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("a message is JSON text") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise Refused("the data of a message of Pub/Sub is base64") from None
