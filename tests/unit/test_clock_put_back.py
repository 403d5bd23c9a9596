"""Stored times from before the database's clock was put back: nothing waits until the clock reaches them again."""

import pytest

from sensorpool.leases.range_state import RangeState
from sensorpool.model.states import Outcome
from sensorpool.model.unsettled import noted, overdue
from sensorpool.model.values import Fact, Unsettled
from sensorpool.worker.load import since_left
from tests.support.builders import START

HOUR = 3_600_000  # milliseconds
WINDOW = 60.0  # seconds


def test_the_window_of_a_result_that_cannot_be_written_is_no_longer_than_it_says() -> None:
    known = {7: Unsettled(START + HOUR, "disk")}
    for passed in (0, 30_000, 60_000):
        fact = Fact(7, 1, START + passed, Outcome.LANDED)
        known = noted([fact], {7: "disk"}, known)
        assert known[7].since == START
        assert bool(overdue([fact], known, WINDOW)) == (passed == 60_000)


@pytest.mark.parametrize(("since", "found"), [(START - HOUR, START - HOUR), (START, START), (START + HOUR, 0)])
def test_a_group_that_was_left_over_before_comes_first(since: int, found: int) -> None:
    assert since_left({7: since}, 7, START) == found
    assert since_left({}, 7, START) == 0


def test_groups_that_are_left_over_again_keep_their_turn() -> None:
    state = RangeState(left_since={1: START + HOUR})
    assert state.in_turn([2, 1], {}, START) == [2, 1]
    assert state.left_since == {1: START, 2: START}
    assert state.in_turn([3, 1], {}, START + 1) == [1, 3]
