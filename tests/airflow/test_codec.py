"""JSON for what sensors take."""

import datetime as dt
import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.codec import decode, encode

OFFSETS = st.integers(-720, 720).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.datetimes(timezones=st.none() | OFFSETS)
    | st.dates()
    | st.times()
    | st.timedeltas(min_value=dt.timedelta(days=-9999), max_value=dt.timedelta(days=9999)).map(
        lambda span: dt.timedelta(seconds=round(span.total_seconds()))
    )
    | st.text("abc/", min_size=1).map(PurePosixPath)
)
HASHABLE = st.integers() | st.text() | st.dates()
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(st.text().filter(lambda name: name != "__type__"), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_read_is_what_was_said(value: Any) -> None:
    said = json.loads(json.dumps(encode(value)))
    read = decode(said)
    assert read == value
    assert type(read) is type(value)
    assert encode(read) == said  # the same condition when it is encoded again


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: True, "is a callable"),
        (dict, "is a callable"),
        (object(), "is a object"),
        (b"bytes", "is a bytes"),
        ({1: 2}, "a mapping that no JSON can hold"),
        ({"__type__": "date"}, "a mapping that no JSON can hold"),
        ([{"a": [lambda: 1]}], "is a callable"),
    ],
)
def test_what_no_json_can_say_is_refused(value: Any, why: str) -> None:
    with pytest.raises(NotPoolable, match=f"its argument x .*{why}"):
        encode(value, "its argument x")


def test_what_is_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    with pytest.raises(NotPoolable, match="nested too deep"):
        encode(value)


@pytest.mark.parametrize("kind", ["os.system", "eval", "", None, 3])
def test_only_the_fixed_few_types_are_read(kind: Any) -> None:
    with pytest.raises(ValueError, match="there is no type"):
        decode({"a": [{"__type__": kind, "value": "echo"}]})
