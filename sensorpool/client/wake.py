"""Wake-ups: conditions are poked at once, because they may hold now, as their source says. The poll stays the truth.

Events of object stores are read as they come: S3's notifications and those of EventBridge, as they are, or within
messages of SNS and SQS; Cloud Storage's, as Pub/Sub pushes or Eventarc sends them. Beside them wake-ups as JSON:
``{"prefix": …}``, ``{"location": …}`` and ``{"op_classpath": …, "poke_context": {…}}``, one or a list.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from sensorpool.errors import Refused
from sensorpool.model.identity import canonical_classpath, identify
from sensorpool.model.location import concerned, location_named
from sensorpool.store import conditions
from sensorpool.store.database import Database

MOST = 10_000  # conditions that one call wakes
LONGEST = 262_144  # bytes, as SQS and SNS have them
_OWN = frozenset({"op_classpath", "poke_context", "prefix", "location"})
_GONE = (
    *("ObjectRemoved", "Object Deleted", "OBJECT_DELETE", "OBJECT_ARCHIVE", "LifecycleExpiration"),
    *("storage.object.v1.deleted", "storage.object.v1.archived"),
)
_SUBSCRIPTION = "SubscriptionConfirmation"
_NO_LOCATION = "is a URL like s3://bucket/folder/name"


class WakeUp(NamedTuple):
    """What may hold now: one condition, all below a prefix, or all that a change at a location concerns."""

    digest: bytes | None = None
    prefix: str | None = None
    location: str | None = None


def wake_up(
    op_classpath: str | None = None,
    poke_context: Mapping[str, Any] | None = None,
    *,
    prefix: str | None = None,
    location: str | None = None,
) -> WakeUp:
    """Check a wake-up.

    :raises Refused: when it does not name exactly one of a condition, a prefix and a location, or names it wrongly.
    """
    if sum(each is not None for each in (op_classpath, prefix, location)) != 1 or (
        poke_context is not None and op_classpath is None
    ):
        raise Refused("a wake-up names one of these: op_classpath and poke_context, prefix, location")
    if op_classpath is not None:
        return WakeUp(digest=identify(canonical_classpath(op_classpath), poke_context or {}).digest)
    if prefix is not None:
        if (where := location_named(prefix)) is None:
            raise Refused(f"prefix {_NO_LOCATION}")
        return WakeUp(prefix=where)
    if (where := location_named(location)) is None:
        raise Refused(f"location {_NO_LOCATION}")
    return WakeUp(location=where)


def conditions_of(database: Database, wake_ups: Iterable[WakeUp]) -> list[conditions.Woken]:
    """Return the conditions that these wake-ups concern, `MOST` at most.

    :raises Unreachable: when the database does not answer.
    """
    wanted = set(wake_ups)
    digests = {each.digest for each in wanted if each.digest is not None}
    locations = {where for each in wanted if each.location is not None for where in concerned(each.location)}
    groups = set(database.read(conditions.of_digests, digests, MOST))
    groups.update(database.read(conditions.of_locations, locations, MOST - len(groups)))
    for prefix in {each.prefix for each in wanted if each.prefix is not None}:
        if len(groups) < MOST:
            groups.update(database.read(conditions.below, prefix, MOST))
    return [*islice(groups, MOST)]


def read_event(text: str | bytes, kind: str = "") -> list[WakeUp]:
    """Return the wake-ups of a message; those of objects that are gone are left out.

    :param kind: what the header `ce-type` says, of a message of Eventarc.
    :raises Refused: when it is none of these, or too long.
    """
    if len(text) > LONGEST:
        raise Refused(f"a message has at most {LONGEST:,} bytes")
    if _is_gone(kind):
        return []
    try:
        return list(_wake_ups(_parsed(text)))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"this is no event of a bucket, and no wake-up ({type(error).__name__})") from None


def subscription(text: str | bytes) -> tuple[str, str] | None:
    """Return the topic and the token with which a subscription of SNS is confirmed, if a message asks for that.

    Nothing here confirms it: an operator does.
    """
    try:
        message = _parsed(text)
    except Refused:
        return None
    if not isinstance(message, dict) or message.get("Type") != _SUBSCRIPTION:
        return None
    topic, token = message.get("TopicArn"), message.get("Token")
    return (topic, token) if isinstance(topic, str) and isinstance(token, str) else None


def _wake_ups(message: Any) -> Iterator[WakeUp]:
    if isinstance(message, str | bytes):
        yield from _wake_ups(_parsed(message))
    elif isinstance(message, list):
        for each in message:
            yield from _wake_ups(each)
    elif not isinstance(message, dict):
        raise Refused("a message is a JSON object, or a list of them")
    elif message.keys() & _OWN:
        if unknown := message.keys() - _OWN:
            raise Refused(f"a wake-up has no field {min(unknown)[:80]!r}")
        yield wake_up(**message)
    elif (within := _within(message)) is not None:
        yield from _wake_ups(within)
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
