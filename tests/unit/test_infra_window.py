"""The infrastructure window: how long failures are retried, and when they are forgotten."""

import pytest

from sensorpool.leases.range_state import RangeState, read_state
from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Failing
from sensorpool.settle.decide import decide
from sensorpool.settle.infra_window import InfraWindow
from tests.support.builders import START, fact, member

INTERVAL, WINDOW, DAY = 60_000, 7_800.0, 86_400_000
ENDED = START + 3 * INTERVAL + 60_000


def test_groups_that_are_gone_are_forgotten() -> None:
    failing = InfraWindow(WINDOW)
    failing.judge(fact(Outcome.INFRA_FAILURE, began_at=START), INTERVAL)
    failing.forget_ended(ENDED - 1)
    assert failing
    failing.forget_ended(ENDED)
    assert not failing


def test_a_failure_goes_on_in_the_poke_that_goes_on_without_its_job() -> None:
    outside = InfraWindow(WINDOW)
    of_range = outside.of_range({1: START - INTERVAL})
    left = of_range.leave_outside([1, 2], START)
    assert left == {1: Failing(START - INTERVAL, START)}
    assert not of_range.since
    outside.learn(left, {1: INTERVAL})
    outside.judge(fact(Outcome.INFRA_FAILURE, began_at=START - 1), INTERVAL)  # it began before, and took long
    assert outside.failing([1]) == {1: Failing(START - INTERVAL, START - 1)}


def test_a_failure_of_a_range_in_work_lasts_however_long_no_poke_was_made() -> None:
    of_range = InfraWindow(WINDOW).of_range({1: START})
    at = START + round(WINDOW * 1000)
    assert of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at - 1), INTERVAL).outcome is Outcome.INFRA_FAILURE
    over = of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at, reason="refused"), INTERVAL)
    assert (over.outcome, over.reason) == (Outcome.POKE_ERROR, "refused (for longer than 7800 s)")
    assert of_range.may_be_gone(at) == [1], "it has settled, or waiters are left who came late"
    of_range.forget([1])
    assert not of_range


@pytest.mark.parametrize(("waited", "ends"), [(round(WINDOW * 1000), [7]), (round(WINDOW * 1000) - 1, [])])
def test_a_window_ends_only_waits_that_have_lasted_as_long(waited: int, ends: list[int]) -> None:
    """The group may be older than a waiter that joined it while its backend was away."""
    at = START + DAY
    of_range = InfraWindow(WINDOW).of_range({1: START})
    over = of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at, reason="refused"), INTERVAL, registered_at=START)
    joined = member()._replace(start_date=at - waited, timeout_at=at + DAY, next_deadline=at + DAY)
    decision = decide({1: over}, [joined], tick_ms=5_000, timeouts=True)
    assert [each.instance_id for each in decision.verdicts] == ends


def test_a_waiter_who_came_late_is_looked_at_again_before_another_window_is_over() -> None:
    of_range = InfraWindow(WINDOW).of_range({1: START})
    joined_at, end = START + 60_000, START + round(1.1 * WINDOW * 1000)
    late = member()._replace(start_date=joined_at, timeout_at=START + DAY, next_deadline=START + DAY)
    ended: list[int] = []
    for at in range(START + round(WINDOW * 1000), end + 1, INTERVAL):
        seen = of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=at), INTERVAL, registered_at=START)
        ended += [at for _ in decide({1: seen}, [late], tick_ms=5_000, timeouts=True).verdicts]
    assert ended == [end]


def test_an_outage_is_no_time_of_failure() -> None:
    of_range = InfraWindow(WINDOW).of_range({1: START})
    of_range.move(DAY, START + DAY + INTERVAL)
    assert of_range.since == {1: START + DAY}
    of_range.move(DAY, START + DAY + INTERVAL)
    assert of_range.since == {1: START + DAY + INTERVAL}, "never in the future"


def test_another_outcome_ends_a_failure_and_one_from_before_the_group_does_not_count() -> None:
    of_range = InfraWindow(WINDOW).of_range({1: START})
    failed = fact(Outcome.INFRA_FAILURE, began_at=START + DAY)
    assert of_range.judge(failed, INTERVAL, registered_at=START + DAY - 1) is failed
    assert of_range.since == {1: START + DAY - 1}
    of_range.judge(fact(Outcome.NOT_LANDED, began_at=START + DAY), INTERVAL)
    assert not of_range


def test_groups_are_spelt_as_text_in_redis_alone() -> None:
    state = RangeState(infra={7: START})
    assert '"infra":{"7":' in state.text(), "as the version before reads it"
    assert read_state(state.text()).infra == {7: START}


def test_a_job_goes_on_with_what_a_poke_outside_has_seen_and_a_landing_ends_it_in_both() -> None:
    outside = InfraWindow(WINDOW)
    outside.judge(fact(Outcome.INFRA_FAILURE, began_at=START), INTERVAL)
    of_range = outside.of_range({})
    assert of_range, "a poke of the job has to be judged"
    of_range.judge(fact(Outcome.INFRA_FAILURE, began_at=START + INTERVAL), INTERVAL)
    assert of_range.since == {1: START}
    assert not outside, "one of the two has it"
    outside.learn(of_range.leave_outside([1], START + INTERVAL), {1: INTERVAL})
    of_range.judge(fact(Outcome.LANDED, began_at=START + 2 * INTERVAL), INTERVAL)
    assert not of_range
    assert not outside


def failed(at: int) -> Fact:
    """A failure of the infrastructure."""
    return fact(Outcome.INFRA_FAILURE, began_at=at, reason="refused")


def test_what_a_poke_of_another_process_has_ended_counts_no_more() -> None:
    """All processes have been told of failures, and know of none any more."""
    here, over = InfraWindow(600.0), START + 630_000
    for at in range(START, over - INTERVAL, INTERVAL):
        here.judge(failed(at), INTERVAL)
    assert here.of_range({}, {}).judge(failed(over), INTERVAL).outcome is Outcome.INFRA_FAILURE
    for at in range(START, over - INTERVAL, INTERVAL):
        here.judge(failed(at), INTERVAL)
    here.learn({}, {1: INTERVAL})
    assert here.judge(failed(over), INTERVAL).outcome is Outcome.INFRA_FAILURE


def test_a_process_that_pokes_seldom_knows_how_the_others_went_on() -> None:
    here, told = InfraWindow(600.0), {1: Failing(START, START + 3 * INTERVAL)}
    here.judge(failed(START), INTERVAL)
    here.learn(told, {1: INTERVAL})
    here.judge(failed(START + 4 * INTERVAL), INTERVAL)
    assert here.failing([1, 2]) == {1: Failing(START, START + 4 * INTERVAL)}


def test_what_is_told_too_late_is_another_failure() -> None:
    here = InfraWindow(600.0)
    here.learn({1: Failing(START, START)}, {1: INTERVAL})
    here.judge(failed(ENDED), INTERVAL)
    assert here.failing([1]) == {1: Failing(ENDED, ENDED)}
    here.learn({1: Failing(START, START)}, {1: INTERVAL})
    assert here.failing([1]) == {1: Failing(ENDED, ENDED)}, "told by a process that has not poked since"
    here.learn({1: Failing(ENDED + DAY, ENDED + DAY)}, {1: INTERVAL})
    assert here.failing([1]) == {1: Failing(ENDED + DAY, ENDED + DAY)}


def test_a_poke_that_is_not_judged_may_end_a_failure() -> None:
    told = {1: Failing(START, START)}
    of_range = InfraWindow(600.0).of_range({1: START}, told)
    of_range.end(1, START + INTERVAL, INTERVAL)
    assert (of_range.since, of_range.take_ended(), told) == ({}, {1}, {})
    assert not of_range


def test_failures_of_groups_that_are_gone_are_forgotten_for_all() -> None:
    told = {1: Failing(START, START), 2: Failing(START + DAY, START + DAY)}
    of_range = InfraWindow(600.0).of_range({}, told)
    assert of_range.may_be_gone(START + DAY) == [1]
    of_range.forget([1])
    assert of_range.take_ended() == {1}
    assert told.keys() == {2}
