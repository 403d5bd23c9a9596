"""The infrastructure window: how long failures are retried, and when they are forgotten."""

import pytest

from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Failing, Told
from sensorpool.settle.decide import decide
from sensorpool.settle.infra_window import OutsideWindow, RangeFailures
from tests.support.builders import START, fact, member

INTERVAL, WINDOW, DAY = 60_000, 7_800.0, 86_400_000
ENDED = START + 3 * INTERVAL + 3_600_000


def failed(at: int) -> Fact:
    """A failure of the infrastructure."""
    return fact(Outcome.INFRA_FAILURE, began_at=at, reason="refused")


def range_failures(since: dict[int, int]) -> RangeFailures:
    """The failures that the last job left."""
    return RangeFailures(WINDOW, since)


def test_a_failure_of_a_range_in_work_lasts_however_long_no_poke_was_made() -> None:
    of_range = range_failures({1: START})
    at = START + round(WINDOW * 1000)
    assert of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at - 1)).outcome is Outcome.INFRA_FAILURE
    over = of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at, reason="refused"))
    assert (over.outcome, over.reason) == (Outcome.POKE_ERROR, "refused (for longer than 7800 s)")
    assert of_range.may_be_gone(at) == [1], "it has settled, or waiters are left who came late"
    of_range.forget([1])
    assert not of_range


@pytest.mark.parametrize(("waited", "ends"), [(round(WINDOW * 1000), [7]), (round(WINDOW * 1000) - 1, [])])
def test_a_window_ends_only_waits_that_have_lasted_as_long(waited: int, ends: list[int]) -> None:
    """The group may be older than a waiter that joined it while its backend was away."""
    at = START + DAY
    of_range = range_failures({1: START})
    over = of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at, reason="refused"), registered_at=START)
    joined = member()._replace(start_date=at - waited, timeout_at=at + DAY, next_deadline=at + DAY)
    decision = decide({1: over}, [joined], tick_ms=5_000, timeouts=True)
    assert [each.instance_id for each in decision.verdicts] == ends


def test_a_waiter_who_came_late_is_looked_at_again_before_another_window_is_over() -> None:
    of_range = range_failures({1: START})
    joined_at, end = START + 60_000, START + round(1.1 * WINDOW * 1000)
    late = member()._replace(start_date=joined_at, timeout_at=START + DAY, next_deadline=START + DAY)
    ended: list[int] = []
    for at in range(START + round(WINDOW * 1000), end + 1, INTERVAL):
        seen = of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at), registered_at=START)
        ended += [at for _ in decide({1: seen}, [late], tick_ms=5_000, timeouts=True).verdicts]
    assert ended == [end]


def test_an_outage_is_no_time_of_failure() -> None:
    of_range = range_failures({1: START})
    of_range.move(DAY, START + DAY + INTERVAL)
    assert of_range.since == {1: START + DAY}
    of_range.move(DAY, START + DAY + INTERVAL)
    assert of_range.since == {1: START + DAY + INTERVAL}, "never in the future"


def test_another_outcome_ends_a_failure_and_one_from_before_the_group_does_not_count() -> None:
    of_range = range_failures({1: START})
    failed = fact(Outcome.INFRA_FAILURE, began_at=START + DAY)
    assert of_range.judge(failed, registered_at=START + DAY - 1) is failed
    assert of_range.since == {1: START + DAY - 1}
    of_range.judge(fact(Outcome.NOT_LANDED, began_at=START + DAY))
    assert not of_range


# what processes tell each other of pokes outside of jobs


def test_a_failure_goes_on_in_a_poke_outside_of_its_job_however_long_that_takes() -> None:
    of_range = range_failures({1: START - INTERVAL})
    told = of_range.leave_outside([1, 2], START)
    assert told == {1: Failing(START - INTERVAL, START)}
    assert not of_range
    outside = OutsideWindow(WINDOW, told)
    outside.judge(failed(START - 1), INTERVAL, took=10 * INTERVAL)  # it began before
    assert outside.failing == {1: Failing(START - INTERVAL, START - 1 + 10 * INTERVAL)}
    later = OutsideWindow(WINDOW, outside.failing)
    later.judge(failed(START + 11 * INTERVAL), INTERVAL)
    assert later.failing[1].since == START - INTERVAL, "it was seen an interval ago"


def test_a_failure_outside_of_jobs_that_no_poke_has_seen_for_long_is_another_one() -> None:
    seen = OutsideWindow(600.0, {1: Failing(START, START)})
    seen.judge(failed(ENDED - 1), INTERVAL)
    assert seen.failing[1].since == ENDED - 1 - 2 * INTERVAL, "an interval and a minute without a poke count"
    seen = OutsideWindow(600.0, {1: Failing(START, START)})
    seen.judge(failed(ENDED), INTERVAL)
    assert seen.failing == {1: Failing(ENDED, ENDED)}


def test_a_poke_outside_that_answers_ends_a_failure() -> None:
    seen = OutsideWindow(WINDOW, {1: Failing(START, START)})
    seen.judge(fact(Outcome.NOT_LANDED, began_at=START + INTERVAL), INTERVAL)
    assert (seen.failing, seen.answered) == ({}, {1: START + INTERVAL})


def test_a_job_takes_up_what_was_told_of_groups_that_it_pokes_itself() -> None:
    told = Told({1: Failing(START - INTERVAL, START), 2: Failing(START, START)}, {})
    of_range = RangeFailures(WINDOW, {}, told, apart={2})
    assert of_range.since == {1: START - INTERVAL}
    assert of_range.taken == {1: told.failing[1]}, "once the state of the range has it"
    of_range.leave_outside([1], START + INTERVAL)
    assert of_range.taken == {}, "it is told again"


def test_a_later_failure_of_a_job_does_not_go_on_with_one_that_was_told_before() -> None:
    told = Told({1: Failing(START - DAY, START - INTERVAL)}, {})
    assert RangeFailures(WINDOW, {1: START}, told).since == {1: START}


@pytest.mark.parametrize(("since", "goes_on"), [(START, False), (START + 2, True)])
def test_an_answer_ends_what_a_job_that_died_has_left(since: int, goes_on: bool) -> None:
    """The job handed the group over and left no state, and the poke outside answered."""
    of_range = RangeFailures(WINDOW, {1: since}, Told({}, {1: START + 1}))
    assert bool(of_range) is goes_on
    assert of_range.taken == {1: START + 1}


def test_what_was_told_already_is_not_told_again() -> None:
    """The poke outside may have answered since."""
    told = Told({1: Failing(START, START)}, {})
    of_range = RangeFailures(WINDOW, {1: START}, told, apart={1})
    assert of_range.leave_outside([1], START + INTERVAL) == {}
    assert not of_range


def test_an_answer_of_a_group_that_is_poked_outside_stays_told() -> None:
    of_range = RangeFailures(WINDOW, {1: START}, Told({}, {1: START}), apart={1})
    assert (of_range.since, of_range.taken) == ({}, {})


def test_the_failures_of_groups_that_are_gone_are_told_no_more() -> None:
    told = Told({1: Failing(START - DAY, START), 2: Failing(START, START)}, {})
    of_range = RangeFailures(WINDOW, {}, told, apart={1, 2})
    assert of_range.may_be_gone(START) == [1]
    of_range.forget([1])
    assert of_range.taken == {1: told.failing[1]}


def test_a_group_that_was_over_outside_may_be_gone_at_once() -> None:
    seen = OutsideWindow(WINDOW, {1: Failing(START - round(WINDOW * 1000), START)})
    assert seen.judge(failed(START + INTERVAL), INTERVAL).outcome is Outcome.POKE_ERROR
    assert RangeFailures(WINDOW, {}, Told(seen.failing, {})).may_be_gone(START + INTERVAL) == [1]


def test_a_clock_that_went_back_leaves_what_can_be_read() -> None:
    assert range_failures({1: START + DAY}).leave_outside([1], START) == {1: Failing(START, START)}
