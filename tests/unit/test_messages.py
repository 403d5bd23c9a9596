"""Messages of settled instances: each message is bounded, and no instance is left out."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool import Settings
from sensorpool.errors import Refused
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Key, Settled
from sensorpool.publish.callbacks import Callbacks
from sensorpool.publish.messages import MESSAGE, bodies_of, result_of


def settled(number: int, value: str | None = None, reason: str | None = None) -> Settled:
    return Settled(number, Key("d", "t", str(number)), State.SUCCESS, Ending.LANDED, reason, value, 1, None)


def results_of(given: list[Settled]) -> list[list[dict[str, Any]]]:
    """What the messages of settled instances say."""
    said = []
    for body, dag_ids in bodies_of(given):
        said.append(json.loads(body)["settled"])
        assert dag_ids == {each["dag_id"] for each in said[-1]}
        assert len(body) <= MESSAGE + 20 or len(said[-1]) == 1
    return said


def sizes(messages: list[list[dict[str, Any]]]) -> list[int]:
    return [len(json.dumps({"settled": said})) for said in messages]


def test_a_small_flush_is_one_message_that_says_all() -> None:
    [said] = results_of([settled(1, '{"a": 1}'), settled(2)])
    assert [each["xcom_value"] for each in said] == [{"a": 1}, None]
    assert all("xcom_value_left_out" not in each for each in said)


@given(
    st.builds(
        Settled,
        st.integers(1, 2**63),
        st.builds(Key, st.text(), st.text(), st.text(), st.integers(-1, 9), st.integers(1, 9)),
        st.sampled_from(State),
        st.sampled_from(Ending),
        st.none() | st.text(),
        st.sampled_from((None, "null", '{"a": [1.5, "\\u00e9é"]}', "NaN", "no JSON")),
        st.just(1),
        st.none(),
    )
)
def test_a_text_says_what_a_callback_is_told(one: Settled) -> None:
    [[said]] = results_of([one])
    assert json.dumps(said) == json.dumps(result_of(one))


def test_a_large_value_is_left_out() -> None:
    large = json.dumps("x" * 250_000)
    [said] = results_of([settled(1, large), settled(2, '"small"')])
    assert (said[0]["xcom_value"], said[0]["xcom_value_left_out"]) == (None, True)
    assert said[1]["xcom_value"] == "small"


def test_a_value_of_many_is_not_said_once_for_each() -> None:
    large = json.dumps("x" * 60_000)
    messages = list(results_of([settled(number, large) for number in range(1_100)]))
    assert sum(sizes(messages)) < 2 * MESSAGE
    assert sum(len(said) for said in messages) == 1_100


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 250_000)),
            st.one_of(st.none(), st.tuples(st.sampled_from("xéx"), st.integers(0, 2_000))),
        ),
        max_size=40,
    )
)
def test_every_message_is_bounded_and_no_instance_is_left_out(
    of: list[tuple[int | None, tuple[str, int] | None]],
) -> None:
    given = [
        settled(
            number,
            None if size is None else json.dumps("x" * size),
            None if reason is None else reason[0] * reason[1],
        )
        for number, (size, reason) in enumerate(of * 20)
    ]
    messages = list(results_of(given))
    assert [each["id"] for said in messages for each in said] == [each.id for each in given]
    assert all(size <= MESSAGE + 20 for size in sizes(messages))


def test_a_callback_waits_while_the_only_broker_is_in_this_process(tmp_path: Path) -> None:
    """A pool in one process has a broker in its memory, which no worker of a user reads."""
    settled = Settled(
        1, Key("d", "t", "r"), State.SUCCESS, Ending.LANDED, None, None, 1, '{"on_settled": [{"task": "theirs.go_on"}]}'
    )
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}", on_settled_tasks="theirs.go_on")
    with pytest.raises(Refused, match="set SENSORPOOL_ON_SETTLED_BROKER_URL"):
        Callbacks(settings).send(settled)
