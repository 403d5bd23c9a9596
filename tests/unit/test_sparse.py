"""Sparse pokes: never more seldom than every tenth interval, and as declared shortly before the earliest landing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sensorpool.model.due import SPREAD, period
from sensorpool.model.usual_landing import FACTOR, is_left_out
from tests.support.builders import START

DAY = 86_400_000


@given(
    interval=st.integers(1_000, 600_000),
    phase=st.integers(0, SPREAD - 1),
    ticks=st.lists(st.integers(1, 5_000), min_size=1, max_size=200),
    ahead=st.integers(0, 10**8),
)
def test_a_poke_is_at_most_ten_intervals_after_another(interval: int, phase: int, ticks: list[int], ahead: int) -> None:
    """Whatever the loads: a tick may be late, or be missed."""
    first, last, poked = START + ahead, START, START
    for tick in ticks:
        now = last + tick * interval // 100
        is_due = period(now, interval, phase) > period(last, interval, phase)
        if is_due and not is_left_out(last, now, interval, phase, first):
            poked = now
        elif is_due:
            assert period(now, interval, phase) - period(poked, interval, phase) < FACTOR
            assert period(now, interval, phase) // FACTOR == period(last, interval, phase) // FACTOR
            assert now < first - FACTOR * interval
        last = now


@given(interval=st.integers(1_000, 600_000), phase=st.integers(0, SPREAD - 1), now=st.integers(START, START + DAY))
def test_nothing_is_left_out_from_ten_intervals_before_the_earliest_landing_on(
    interval: int, phase: int, now: int
) -> None:
    for first in (0, now, now + FACTOR * interval):
        assert not is_left_out(now - interval, now, interval, phase, first)


@given(interval=st.integers(1_000, 600_000), phase=st.integers(0, SPREAD - 1))
def test_one_in_ten_is_poked_long_before(interval: int, phase: int) -> None:
    moments = [START + n * interval for n in range(10 * FACTOR + 1)]
    first = START + 1_000 * interval
    poked = [not is_left_out(last, now, interval, phase, first) for last, now in pairwise(moments)]
    assert sum(poked) == 10
