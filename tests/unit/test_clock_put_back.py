"""Stored times from before the database's clock was put back: nothing waits until the clock reaches them again."""

import pytest

from sensorpool.leases.range_state import RangeState
from sensorpool.worker.load import since_left
from tests.support.builders import START

HOUR = 3_600_000  # milliseconds


@pytest.mark.parametrize(("since", "found"), [(START - HOUR, START - HOUR), (START, START), (START + HOUR, 0)])
def test_a_group_that_was_left_over_before_comes_first(since: int, found: int) -> None:
    assert since_left({7: since}, 7, START) == found
    assert since_left({}, 7, START) == 0


def test_groups_that_are_left_over_again_keep_their_turn() -> None:
    state = RangeState(left={1: START + HOUR})
    state.leave_over([2, 1], {}, START)
    assert list(state.left.items()) == [(2, START), (1, START)]
    state.leave_over([3, 1], {}, START + 1)
    assert list(state.left.items()) == [(1, START), (3, START + 1)]
