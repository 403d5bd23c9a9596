"""The execution context in a row: what is written is read again, and a row that was edited by hand has defaults."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.model.execution_context import ExecutionContext
from sensorpool.model.values import LONGEST_SPAN

WAITS_FOR = 77.0
PLAIN = ExecutionContext(60.0, WAITS_FOR)

spans = st.floats(0, LONGEST_SPAN)
maybe_spans = st.none() | spans


@given(
    st.builds(
        ExecutionContext,
        poke_interval=spans,
        timeout=spans,
        execution_timeout=maybe_spans,
        exponential_backoff=st.booleans(),
        max_wait=maybe_spans,
        soft_fail=st.booleans(),
        silent_fail=st.booleans(),
        never_fail=st.booleans(),
    )
)
def test_what_is_written_is_read(context: ExecutionContext) -> None:
    assert ExecutionContext.from_text(context.as_text(), WAITS_FOR) == context


def test_the_text_says_what_is_set_and_no_more() -> None:
    assert ExecutionContext(5.0, 60.0).as_text() == '{"poke_interval": 5.0, "timeout": 60.0}'
    assert ExecutionContext(5.0, 0.0, never_fail=True).as_text() == (
        '{"poke_interval": 5.0, "timeout": 0.0, "never_fail": true}'
    )


@pytest.mark.parametrize(
    "text", ["", "garbage", "[]", "null", "7", '"text"', "{}", "[" * 100_000, '{"other": 1}'], ids=lambda text: text[:9]
)
def test_what_is_no_context_counts_as_plain(text: str) -> None:
    assert ExecutionContext.from_text(text, WAITS_FOR) == PLAIN


@pytest.mark.parametrize("value", ['"x"', "[]", "{}", "true", "null", "-1", "1e300", "NaN", "1" + "0" * 400])
@pytest.mark.parametrize("name", ["poke_interval", "timeout", "execution_timeout", "max_wait"])
def test_a_span_that_is_none_counts_as_left_out(name: str, value: str) -> None:
    assert ExecutionContext.from_text(f'{{"{name}": {value}}}', WAITS_FOR) == PLAIN


@pytest.mark.parametrize(
    ("more", "limit", "ends_execution"),
    [
        ({}, 60.0, False),
        ({"execution_timeout": 59.0}, 59.0, True),
        ({"execution_timeout": 60.0}, 60.0, False),
        ({"execution_timeout": 61.0}, 60.0, False),
        ({"execution_timeout": 0.0}, 0.0, True),
    ],
)
def test_the_shorter_of_the_two_timeouts_ends_the_wait(
    more: dict[str, Any], limit: float, ends_execution: bool
) -> None:
    context = ExecutionContext(5.0, 60.0, **more)
    assert (context.limit, context.ends_execution) == (limit, ends_execution)
