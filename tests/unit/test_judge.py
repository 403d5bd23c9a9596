"""What a report means: the fact that counts, and the trouble of its group from then on."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.trouble import ALONE, HEALTHY, LONGEST_CAUSE, Trouble
from sensorpool.model.values import Fact, Report, Verdict
from sensorpool.settle.decide import decide
from sensorpool.settle.judge import (
    Rules,
    from_then_on,
    is_last,
    is_quarantined,
    judge,
    outage,
    quarantined,
    struck,
    turn_of_others,
)
from tests.support.builders import START, TIMEOUT, due_group, fact, member

TICK, INTERVAL, WINDOW, DAY = 5_000, 60_000, 600_000, 86_400_000
RULES = Rules(infra_failure_window=WINDOW / 1000, crash_limit=3, overrun_limit=3, tick_ms=TICK)
TURN = turn_of_others(INTERVAL, TICK)
DEADLINE = START + TIMEOUT
TROUBLED = (Outcome.INFRA_FAILURE, Outcome.CANNOT_POKE, Outcome.POKE_TIMEOUT, Outcome.CRASHED)

times = st.integers(START - DAY, START + DAY)
troubles = st.builds(
    Trouble, st.integers(0, 9), st.integers(0, 9), st.none() | times, st.none() | times, st.none() | st.just("before")
)


def report(outcome: Outcome, reason: str | None = "why", **more: Any) -> Report:
    """Return the report of a poke of a group that is poked every minute."""
    return Report(due_group(poke_interval=INTERVAL), 0.0, outcome, reason, **more)


def poked(outcome: Outcome, known: Trouble = HEALTHY, at: int = START, **more: Any) -> tuple[Fact | None, Trouble]:
    """Judge a poke that began then."""
    return judge(report(outcome, **more), at, known, RULES)


def said(outcome: Outcome, known: Trouble, at: int) -> Fact:
    """Judge a poke that says something now."""
    found, _ = poked(outcome, known, at)
    assert found is not None
    return found


def verdicts(seen: Fact, *, timeouts: bool = True, **waits: Any) -> list[Verdict]:
    """Return what a fact does to a waiter of the group."""
    return decide({1: seen}, [member()._replace(**waits)], tick_ms=TICK, timeouts=timeouts).verdicts


@given(troubles, st.sampled_from([outcome for outcome in Outcome if outcome not in TROUBLED]))
def test_an_answer_ends_any_trouble(known: Trouble, outcome: Outcome) -> None:
    assert poked(outcome, known) == (Fact(1, 1, START, outcome, "why"), HEALTHY)


@given(troubles, st.sampled_from(TROUBLED), st.booleans())
def test_a_trouble_says_what_its_poke_said_and_no_more_than_so_much(
    known: Trouble, outcome: Outcome, many: bool
) -> None:
    _, trouble = poked(outcome, known, reason="x" * 1_000, of_many=many)
    assert trouble != HEALTHY
    assert trouble.cause in (known.cause, "x" * LONGEST_CAUSE)


# strikes


@given(st.lists(st.sampled_from([*TROUBLED, None]), max_size=12))
def test_without_a_death_of_its_own_doing_no_group_is_quarantined(pokes: list[Outcome | None]) -> None:
    """None: a worker died with the poke in hand."""
    trouble = HEALTHY
    for outcome in pokes:
        trouble = struck(trouble, "a worker died") if outcome is None else poked(outcome, trouble)[1]
        assert trouble.strikes <= ALONE
        assert not is_quarantined(trouble, RULES)


def test_a_group_is_poked_with_others_then_alone_then_quarantined() -> None:
    trouble = HEALTHY
    for strikes, alone in ((1, False), (2, True), (2, True)):
        seen, trouble = poked(Outcome.CRASHED, trouble)
        assert (trouble.strikes, trouble.is_isolated, trouble.is_alone) == (strikes, True, alone)
        assert seen is None, "the poke of another group may have ended the process"
    seen, trouble = poked(Outcome.CRASHED, trouble, own_doing=True, reason="signal 11")
    assert is_quarantined(trouble, RULES)
    assert seen is not None
    assert (seen.outcome, seen.reason) == (
        Outcome.FAIL,
        "quarantined: its poke took its process down 3 times, the last time: signal 11",
    )
    assert seen == quarantined(fact(Outcome.CRASHED, began_at=START), trouble)


@pytest.mark.parametrize(("limit", "strikes"), [(0, 3), (1, 3), (3, 3), (5, 5)])
def test_a_low_crash_limit_counts_as_three(limit: int, strikes: int) -> None:
    rules = RULES._replace(crash_limit=limit)
    assert is_quarantined(Trouble(strikes), rules)
    assert not is_quarantined(Trouble(strikes - 1), rules)


@given(troubles, st.booleans())
def test_a_strike_takes_none_away(known: Trouble, own_doing: bool) -> None:
    after = struck(known, None, own_doing=own_doing)
    assert known.strikes <= after.strikes <= known.strikes + 1
    assert after.strikes >= 1
    assert after.overruns == known.overruns


# overruns


def test_overruns_are_counted_in_a_row_and_isolate() -> None:
    trouble = HEALTHY
    for in_a_row in (1, 2, 3, 4):
        seen, trouble = poked(Outcome.POKE_TIMEOUT, trouble)
        assert seen is not None
        assert (trouble.overruns, trouble.is_isolated, trouble.is_alone) == (in_a_row, True, False)
        assert is_last(seen) is (in_a_row >= 3)
        assert ("times in a row" in str(seen.reason)) is (in_a_row > 1)


def test_an_overrun_of_a_call_for_many_ends_no_wait_and_counts_once() -> None:
    trouble = HEALTHY
    for _ in range(5):
        seen, trouble = poked(Outcome.POKE_TIMEOUT, trouble, at=DEADLINE, of_many=True)
        assert (seen, trouble.overruns) == (None, 1)


@pytest.mark.parametrize(
    ("in_a_row", "limit", "late", "takes_back"), list(product((1, 2, 3, 4), (0, 1, 3), (False, True), (False, True)))
)
def test_who_is_handed_back(in_a_row: int, limit: int, late: bool, takes_back: bool) -> None:
    began_at = DEADLINE if late else DEADLINE - 1
    rules = RULES._replace(overrun_limit=limit)
    seen, _ = judge(report(Outcome.POKE_TIMEOUT), began_at, Trouble(overruns=in_a_row - 1), rules)
    assert seen is not None
    assert is_last(seen) is (0 < limit <= in_a_row)
    found = [(each.state, each.ending) for each in verdicts(seen, takes_back=takes_back)]
    if takes_back and limit and (late or in_a_row >= limit):
        assert found == [(State.CANCELLED, Ending.HANDED_BACK)]
    else:
        assert found == ([(State.FAILED, Ending.TIMEOUT)] if late else [])


def test_while_the_clock_is_in_doubt_only_the_count_hands_back() -> None:
    for overruns, ends in ((1, False), (2, True)):
        seen = said(Outcome.POKE_TIMEOUT, Trouble(overruns=overruns), DEADLINE)
        assert bool(verdicts(seen, timeouts=False, takes_back=True)) is ends


@pytest.mark.parametrize("overruns", [0, 2])
def test_an_execution_timeout_ends_a_task_wherever_it_pokes(overruns: int) -> None:
    seen = said(Outcome.POKE_TIMEOUT, Trouble(overruns=overruns), DEADLINE)
    for execution_timeout, ending in ((TIMEOUT / 2_000, Ending.EXECUTION_TIMEOUT), (TIMEOUT, Ending.HANDED_BACK)):
        waits = member(execution_timeout=execution_timeout)._replace(takes_back=True)
        [verdict] = decide({1: seen}, [waits], tick_ms=TICK, timeouts=True).verdicts
        assert verdict.ending is ending


# the window of failures


def test_a_failure_counts_once_it_has_lasted_for_the_window() -> None:
    _, trouble = poked(Outcome.INFRA_FAILURE, reason="refused")
    assert trouble == Trouble(failing_since=START, cause="refused")
    seen, same = poked(Outcome.INFRA_FAILURE, trouble, at=START + WINDOW - 1, reason="still refused")
    assert same is not trouble
    assert same == trouble, "so nothing is written"
    assert seen is not None
    assert seen.outcome is Outcome.INFRA_FAILURE
    over = said(Outcome.INFRA_FAILURE, trouble, START + WINDOW)
    assert (over.outcome, over.reason) == (Outcome.POKE_ERROR, "why (for longer than 600 s)")


@pytest.mark.parametrize(("waited", "ends"), [(WINDOW, [7]), (WINDOW - 1, [])])
def test_a_window_ends_only_waits_that_have_lasted_as_long(waited: int, ends: list[int]) -> None:
    """The group may be older than a waiter that joined it while its backend was away."""
    at = START + DAY
    over = said(Outcome.INFRA_FAILURE, Trouble(failing_since=START), at)
    found = verdicts(over, start_date=at - waited, timeout_at=at + DAY, next_deadline=at + DAY)
    assert [each.instance_id for each in found] == ends


def test_a_waiter_who_came_late_is_looked_at_again_before_another_window_is_over() -> None:
    trouble, end, ended = Trouble(failing_since=START), START + WINDOW + INTERVAL, list[int]()
    late: dict[str, Any] = {"start_date": START + INTERVAL, "timeout_at": START + DAY, "next_deadline": START + DAY}
    for at in range(START + WINDOW, end + 1, INTERVAL):
        seen, trouble = poked(Outcome.INFRA_FAILURE, trouble, at=at)
        assert seen is not None
        ended += [at for _ in verdicts(seen, **late)]
    assert ended == [end]


@given(st.none() | times, times, times)
def test_a_window_begins_neither_before_its_group_nor_in_the_future(since: int | None, born: int, now: int) -> None:
    begins = from_then_on(since, born, now)
    assert begins <= now
    assert begins >= min(born, now)
    assert begins == now or begins in (since, born)


def test_an_outage_is_what_a_slow_pool_and_a_dead_holder_do_not_explain() -> None:
    assert outage(START, START + 45_000, lease_ttl=30.0, tick=5.0) == 0
    assert outage(START, START + 45_001, lease_ttl=30.0, tick=5.0) == 1
    assert outage(START, START - 5_000, lease_ttl=30.0, tick=5.0) == 0, "the clock went back"


# groups that no process can poke


def test_a_deadline_counts_after_the_turn_of_the_others() -> None:
    known = Trouble(unpokeable_since=DEADLINE - TURN)
    assert poked(Outcome.CANNOT_POKE, Trouble(unpokeable_since=DEADLINE - 1_000), at=DEADLINE)[0] is None
    early, late = (said(Outcome.CANNOT_POKE, known, DEADLINE + TURN - short) for short in (1, 0))
    for takes_back, ending in ((False, Ending.TIMEOUT), (True, Ending.HANDED_BACK)):
        assert verdicts(early, takes_back=takes_back) == []
        [verdict] = verdicts(late, takes_back=takes_back)
        assert verdict.ending is ending
        assert "why" in str(verdict.reason)


@pytest.mark.parametrize("ticks", [1, 2, 12])
def test_the_turn_of_others_leaves_room_for_the_promise(ticks: int) -> None:
    """The group is due once an interval, so it ends before the third interval after its deadline."""
    interval = ticks * TICK
    assert 0 < turn_of_others(interval, TICK) <= 2 * interval - TICK


def test_when_no_process_could_for_the_window_it_ends() -> None:
    known = Trouble(unpokeable_since=START)
    at = START + WINDOW
    assert said(Outcome.CANNOT_POKE, known, at - 1).outcome is Outcome.CANNOT_POKE
    over = said(Outcome.CANNOT_POKE, known, at)
    for takes_back, state in ((False, State.FAILED), (True, State.CANCELLED)):
        [verdict] = verdicts(over, takes_back=takes_back)
        assert verdict.state is state
        assert verdict.reason == "no process could poke it for 600 s, the last one: why"


def test_one_who_came_late_times_out_only_after_the_turn_of_others() -> None:
    at = START + 2 * WINDOW
    over = said(Outcome.CANNOT_POKE, Trouble(unpokeable_since=START), at)
    assert over.outcome is Outcome.UNPOKEABLE
    for deadline, ends in ((at - TURN + 1, False), (at - TURN, True)):
        late: dict[str, Any] = {"start_date": at - 1_000, "timeout_at": deadline, "next_deadline": deadline}
        assert bool(verdicts(over, **late)) is ends


def test_a_group_that_cannot_be_poked_keeps_its_other_troubles() -> None:
    known = Trouble(strikes=2, overruns=1, failing_since=START - 1, cause="before")
    assert poked(Outcome.CANNOT_POKE, known)[1] == known._replace(unpokeable_since=START, cause="why")


def test_a_step_does_not_grow_where_nobody_poked() -> None:
    backs_off = member(next_deadline=START + 1, exponential_backoff=True)
    seen = said(Outcome.CANNOT_POKE, Trouble(unpokeable_since=START - 2 * TURN), START + TURN + 10_000)
    assert seen.outcome is Outcome.CANNOT_POKE
    assert decide({1: seen}, [backs_off], tick_ms=TICK, timeouts=True).grown == []
