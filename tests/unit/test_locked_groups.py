"""A group that another transaction has locked is poked again, and does not fail: a lock ends with its holder."""

from sensorpool.model.states import Outcome
from sensorpool.model.unsettled import LOCKED, noted, overdue
from sensorpool.model.values import Fact, Unsettled

WINDOW = 10.0  # seconds
LATE = Fact(1, 1, 100_000, Outcome.LANDED)


def test_a_lock_fails_no_group() -> None:
    assert overdue([LATE], {1: Unsettled(1, LOCKED)}, WINDOW) == []
    [failed] = overdue([LATE], {1: Unsettled(1, "no such column")}, WINDOW)
    assert failed.outcome is Outcome.FAIL


def test_the_time_of_a_lock_does_not_count_for_what_comes_after_it() -> None:
    known = {1: Unsettled(1, LOCKED)}
    assert noted([LATE], {1: LOCKED}, known) == {1: Unsettled(1, LOCKED)}
    found = noted([LATE], {1: "no such column"}, known)
    assert found == {1: Unsettled(LATE.began_at, "no such column")}
    assert overdue([LATE], found, WINDOW) == []
