"""Events of object stores as they come, and what is none."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.client import wake
from sensorpool.client.wake import WakeUp
from sensorpool.client.wake import read_event as read
from sensorpool.errors import Refused

NEW = [WakeUp(location="s3://in/day=1/a b.csv")]
S3 = {
    "Records": [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "in"}, "object": {"key": "day%3D1/a+b.csv", "size": 7}},
        }
    ]
}
EVENT_BRIDGE = {
    "detail-type": "Object Created",
    "source": "aws.s3",
    "detail": {"bucket": {"name": "in"}, "object": {"key": "day=1/a b.csv"}},
}
OBJECT = {"kind": "storage#object", "bucket": "in", "name": "x/y"}


def pub_sub(**attributes: str) -> dict[str, Any]:
    return {"message": {"attributes": {"bucketId": "in", "objectId": "x/y"} | attributes, "messageId": "1"}}


@pytest.mark.parametrize(
    "event",
    [
        S3,
        EVENT_BRIDGE,
        {"Type": "Notification", "Message": json.dumps(S3)},
        {"Messages": [{"Body": json.dumps(S3)}]},
        {
            "Records": [
                {"eventSource": "aws:sqs", "body": json.dumps({"Type": "Notification", "Message": json.dumps(S3)})}
            ]
        },
        [EVENT_BRIDGE],
        {"location": "s3://in/day=1/a b.csv"},
    ],
)
def test_a_new_object_of_s3(event: Any) -> None:
    assert read(json.dumps(event)) == NEW


@pytest.mark.parametrize(
    "event",
    [
        pub_sub(eventType="OBJECT_FINALIZE"),
        OBJECT,
        {"receivedMessages": [pub_sub()]},
    ],
)
def test_a_new_object_of_cloud_storage(event: Any) -> None:
    assert read(json.dumps(event).encode()) == [WakeUp(location="gs://in/x/y")]


def test_what_is_gone_wakes_nothing() -> None:
    gone = json.loads(json.dumps(S3).replace("ObjectCreated:Put", "ObjectRemoved:Delete"))
    assert read(json.dumps(gone)) == []
    assert read(json.dumps(EVENT_BRIDGE | {"detail-type": "Object Deleted"})) == []
    assert read(json.dumps(pub_sub(eventType="OBJECT_DELETE"))) == []
    assert read(json.dumps({"Event": "s3:TestEvent", "Bucket": "in"})) == []
    assert read(json.dumps(OBJECT), "google.cloud.storage.object.v1.deleted") == []
    assert read(json.dumps(OBJECT), "google.cloud.storage.object.v1.finalized") != []


def test_an_odd_name_keeps_no_other_back() -> None:
    odd = json.loads(json.dumps(S3).replace("a+b.csv", "a%0Ab"))
    assert read(json.dumps({"Records": [*odd["Records"], *S3["Records"]]})) == NEW  # type: ignore[misc]


def test_a_subscription_is_told_and_not_followed() -> None:
    asks = json.dumps({"Type": "SubscriptionConfirmation", "TopicArn": "arn:x", "Token": "23f", "Message": "x"})
    assert read(asks) == []
    assert wake.subscription(asks) == ("arn:x", "23f")
    assert wake.subscription('{"Type": "SubscriptionConfirmation"}') is None
    assert wake.subscription(json.dumps(S3)) is None
    assert wake.subscription("{") is None


def test_wake_ups_as_they_are() -> None:
    found = read('[{"prefix": "s3://in/day=1/"}, {"op_classpath": "a.B", "poke_context": {"x": 1}}]')
    assert found[0] == WakeUp(prefix="s3://in/day=1/")
    assert found[1].digest is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "JSON text"),
        ("7", "a JSON object"),
        ('"' * 3, "JSON text"),
        ('{"detail": {}}', "no event of a bucket"),
        ('{"Records": [7]}', "a JSON object"),
        ('{"Records": [{"s3": {"bucket": {}}}]}', "no event of a bucket"),
        ('{"prefix": "s3://x/", "token": "y"}', "no field 'token'"),
        ('{"prefix": "/data"}', "prefix is a URL"),
        ('{"location": 7}', "location is a URL"),
        ('{"op_classpath": 7}', "class path"),
        ('{"op_classpath": "a.B", "prefix": "s3://x/"}', "names one of these"),
        ("[" * 100_000, "JSON text"),
        (" " * (wake.LONGEST + 1), "at most"),
    ],
)
def test_what_is_no_event_is_refused_whole_in_one_line(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        read(text)
    assert "\n" not in str(refused.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda some: (
        st.lists(some, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Records", "s3", "detail", "message", "data", "attributes", "bucketId", "Message", "x"]),
            some,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(event=_JSON)
def test_any_json_is_read_or_refused(event: Any) -> None:
    with suppress(Refused):
        assert isinstance(read(json.dumps(event)), list)
