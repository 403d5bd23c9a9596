"""The record of a job's pokes: written pokes are found again, and a garbled record is skipped."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.leases.poke_log import Poked, Record, latest_pokes
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from tests.support.builders import START, due_group

_pokes = st.lists(
    st.tuples(st.integers(1, 2**62), st.integers(-10_000, 300_000), st.sampled_from(Outcome)),
    unique_by=lambda poke: poke[0],
    min_size=1,
    max_size=50,
)


def last_poke(records: Iterable[str], group_id: int) -> Poked | None:
    return latest_pokes(records, {group_id}).get(group_id)


@given(_pokes)
def test_every_poke_is_found_again(pokes: list[tuple[int, int, Outcome]]) -> None:
    record = Record(START)
    for some in (pokes[::2], pokes[1::2]):
        reports = [Report(due_group(group_id), 0.0, outcome) for group_id, _, outcome in some]
        record.add(reports, [offset for _, offset, _ in some])
    assert len(record) == len(pokes)
    [text] = record.texts().values()
    for group_id, offset, outcome in pokes:
        assert last_poke([text], group_id) == Poked(START + offset, outcome, None, 0.0)


def _record(at: int, group_id: int, outcome: Outcome) -> str:
    record = Record(at)
    record.add([Report(due_group(group_id), 0.0, outcome)], [0])
    [text] = record.texts().values()
    return text


def test_the_latest_of_many_records_wins_in_any_order() -> None:
    texts = [_record(START + shift, 5, outcome) for shift, outcome in zip((0, 9, 4), Outcome, strict=False)]
    assert last_poke(texts, 5) == last_poke(reversed(texts), 5) == Poked(START + 9, list(Outcome)[1], None, 0.0)


def test_a_group_that_nobody_poked_has_no_last_poke() -> None:
    assert last_poke([], 5) is None
    assert last_poke([_record(START, 4, Outcome.LANDED)], 5) is None


GARBLED = [
    "",
    "nonsense",
    "null",
    "7",
    "[]",
    "{}",
    '[1,"a",[0]]',
    '[1,"?",[0],[5]]',
    '[1,"",[],[5]]',
    '["x","a",[0],[5]]',
]


@pytest.mark.parametrize("garbled", [*GARBLED, json.dumps([START, "a", None, [5]])])
def test_a_garbled_record_is_passed_over(garbled: str) -> None:
    sound = _record(START, 5, Outcome.NOT_LANDED)
    assert last_poke([garbled, sound, garbled], 5) == Poked(START, Outcome.NOT_LANDED, None, 0.0)


def test_an_outcome_keeps_its_code() -> None:
    """Records store the places of outcomes, and other versions read them: a new outcome comes last."""
    codes = "landed not_landed poke_error poke_timeout infra_failure skip fail crashed hand_back cannot_poke unpokeable"
    assert [outcome.value for outcome in Outcome] == [*codes.split(), "exited"]
