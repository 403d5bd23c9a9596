"""The decision table: the meaning of a fact for a member, compared with Airflow's rules."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.model.states import INCONCLUSIVE, Outcome, State
from sensorpool.settle.decide import decide, matters
from tests.support.builders import START, TIMEOUT, fact, member

TICK = 5_000
LENIENCY = [  # soft_fail and never_fail exclude each other, as in Airflow
    flags for flags in product((False, True), repeat=3) if not (flags[0] and flags[2])
]


def _airflow(outcome: Outcome, soft_fail: bool, silent_fail: bool, never_fail: bool, late: bool) -> State | None:
    """``BaseSensorOperator.execute`` of Airflow 3."""
    nothing = outcome in INCONCLUSIVE
    if outcome is Outcome.LANDED:
        return State.SUCCESS
    if outcome is Outcome.SKIP:
        return State.SKIPPED
    if outcome is Outcome.HAND_BACK:
        return State.CANCELLED  # ours: the waiter pokes by itself
    if outcome in (Outcome.FAIL, Outcome.UNPOKEABLE):
        return State.SKIPPED if soft_fail or never_fail else State.FAILED
    if outcome is Outcome.EXITED:
        return State.FAILED  # a BaseException passes all of Airflow's flags
    if outcome is Outcome.POKE_ERROR:
        nothing = silent_fail
    if nothing:
        if not late:
            return None
        return State.SKIPPED if soft_fail else State.FAILED  # never_fail does not matter at a sensor's timeout
    return State.SKIPPED if never_fail else State.FAILED  # soft_fail does not matter at an error


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("soft_fail", "silent_fail", "never_fail"), LENIENCY)
@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_means_what_it_means_in_airflow(
    outcome: Outcome, soft_fail: bool, silent_fail: bool, never_fail: bool, late: bool
) -> None:
    waits = {"soft_fail": soft_fail, "silent_fail": silent_fail, "never_fail": never_fail}
    began_at = START + TIMEOUT if late else START + TIMEOUT - 1
    expected = _airflow(outcome, soft_fail, silent_fail, never_fail, late)
    for joined_version in (1, 3, 4):
        decision = decide(
            {1: fact(outcome, began_at=began_at, version=3, reason="why", xcom_value='"x"')},
            [member(joined_version=joined_version, **waits)],
            tick_ms=TICK,
            timeouts=True,
        )
        found = [(verdict.instance_id, verdict.group_id, verdict.state) for verdict in decision.verdicts]
        # a member that joined after the load is not settled by an earlier poke
        assert found == ([] if expected is None or joined_version > 3 else [(7, 1, expected)])
        assert decision.grown == []


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("takes_back", [False, True])
@pytest.mark.parametrize(
    ("outcome", "retried"),
    [(Outcome.POKE_ERROR, Outcome.INFRA_FAILURE), (Outcome.UNPOKEABLE, Outcome.CANNOT_POKE)],
)
def test_a_failure_that_lasts_ends_no_wait_that_began_later(
    outcome: Outcome, retried: Outcome, takes_back: bool, late: bool
) -> None:
    """To a waiter that joined the group later it is what it is while it is retried."""
    began_at = START + TIMEOUT if late else START + 1_000
    joined = member()._replace(takes_back=takes_back)
    for since, alike in ((START, outcome), (START - 1, retried), (None, outcome)):
        facts = [
            fact(outcome, began_at=began_at, since=since, reason="why"),
            fact(alike, began_at=began_at, reason="why"),
        ]
        found = [decide({1: each}, [joined], tick_ms=TICK, timeouts=True) for each in facts]
        assert found[0] == found[1]


@pytest.mark.parametrize("silent_fail", [False, True])
@pytest.mark.parametrize("outcome", Outcome)
def test_nothing_times_out_while_the_clock_is_in_doubt(outcome: Outcome, silent_fail: bool) -> None:
    late = fact(outcome, began_at=START + 10 * TIMEOUT)
    decision = decide({1: late}, [member(silent_fail=silent_fail)], tick_ms=TICK, timeouts=False)
    found = [verdict.state for verdict in decision.verdicts]
    expected = _airflow(outcome, False, silent_fail, False, late=False)
    assert found == ([] if expected is None else [expected])
    assert decision.grown == []


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize("outcome", sorted(INCONCLUSIVE))
def test_an_execution_timeout_fails_whatever_soft_fail_says(outcome: Outcome, soft_fail: bool) -> None:
    waits = member(execution_timeout=60.0, soft_fail=soft_fail)
    for began_at, states in ((START + 59_999, []), (START + 60_000, [State.FAILED])):
        decision = decide({1: fact(outcome, began_at=began_at)}, [waits], tick_ms=TICK, timeouts=True)
        assert [verdict.state for verdict in decision.verdicts] == states
    assert "execution_timeout of 60 s" in str(decision.verdicts[0].reason)


def test_a_timeout_that_comes_before_the_execution_timeout_is_a_sensor_timeout() -> None:
    waits = member(execution_timeout=2 * TIMEOUT / 1000, soft_fail=True)
    decision = decide({1: fact(Outcome.NOT_LANDED, began_at=START + TIMEOUT)}, [waits], tick_ms=TICK, timeouts=True)
    assert decision.verdicts[0].state is State.SKIPPED
    assert " timeout of 600 s" in str(decision.verdicts[0].reason)


def test_a_timeout_says_what_the_last_poke_saw() -> None:
    late = fact(Outcome.INFRA_FAILURE, began_at=START + TIMEOUT, reason="ConnectionError: refused")
    reason = str(decide({1: late}, [member()], tick_ms=TICK, timeouts=True).verdicts[0].reason)
    assert "600.0 s" in reason
    assert "infra_failure" in reason
    assert "ConnectionError: refused" in reason


def test_a_landing_hands_its_xcom_value_over_and_an_error_its_reason() -> None:
    landed = decide({1: fact(Outcome.LANDED, xcom_value='{"a":1}')}, [member()], tick_ms=TICK, timeouts=True)
    assert (landed.verdicts[0].xcom_value, landed.verdicts[0].reason) == ('{"a":1}', None)
    failed = decide({1: fact(Outcome.POKE_ERROR, reason="ValueError: no")}, [member()], tick_ms=TICK, timeouts=True)
    assert (failed.verdicts[0].xcom_value, failed.verdicts[0].reason) == (None, "ValueError: no")


def test_each_member_is_judged_by_its_own_patience() -> None:
    members = [member(), member(never_fail=True), member(silent_fail=True), member(joined_version=2)]
    decision = decide({1: fact(Outcome.POKE_ERROR)}, members, tick_ms=TICK, timeouts=True)
    assert [verdict.state for verdict in decision.verdicts] == [State.FAILED, State.SKIPPED]


def test_members_with_one_text_that_says_nothing_have_their_own_deadlines() -> None:
    plain = member()._replace(execution_context="{}")
    members = [plain, plain._replace(timeout_at=START + 60_000)]
    decision = decide({1: fact(Outcome.NOT_LANDED, began_at=START + TIMEOUT)}, members, tick_ms=TICK, timeouts=True)
    limits = [str(verdict.reason).partition("more than its ")[2].partition(";")[0] for verdict in decision.verdicts]
    assert limits == ["timeout of 600 s", "timeout of 60 s"]


def test_backoff_grows_when_a_step_has_ended() -> None:
    waits = {"poke_interval": 10.0, "exponential_backoff": True}
    steps = [(10_000, 20_000, 30_000), (29_999, 20_000, 30_000), (30_000, 40_000, 70_000), (70_000, 80_000, 150_000)]
    for waited, step, ends in steps:
        at = fact(Outcome.NOT_LANDED, began_at=START + waited)
        [(grown, grown_step)] = decide(
            {1: at}, [member(next_deadline=START + 10_000, **waits)], tick_ms=TICK, timeouts=True
        ).grown
        assert (grown_step, grown.next_deadline) == (step, START + ends)


def test_backoff_stops_growing_at_max_wait_and_then_only_the_timeout_is_left() -> None:
    waits = member(next_deadline=START + 10_000, poke_interval=10.0, exponential_backoff=True, max_wait=17.0)
    at = fact(Outcome.NOT_LANDED, began_at=START + 10_000)
    [(grown, step)] = decide({1: at}, [waits], tick_ms=TICK, timeouts=True).grown
    assert step == 20_000  # 17 s in whole ticks of 5 s
    assert grown.next_deadline == START + TIMEOUT


@given(waited=st.integers(0, TIMEOUT - 1), base=st.integers(1, 300), max_wait=st.none() | st.integers(1, 600))
def test_a_grown_deadline_lies_ahead_and_not_after_the_timeout(waited: int, base: int, max_wait: int | None) -> None:
    waits = member(next_deadline=START, poke_interval=float(base), exponential_backoff=True, max_wait=max_wait)
    at = fact(Outcome.POKE_TIMEOUT, began_at=START + waited)
    [(grown, step)] = decide({1: at}, [waits], tick_ms=TICK, timeouts=True).grown
    assert START + waited < grown.next_deadline <= START + TIMEOUT
    assert step % TICK == 0
    assert step >= base * 1000


@given(
    outcome=st.sampled_from(Outcome),
    began=st.integers(-2, 2),
    timeouts=st.booleans(),
    flags=st.sampled_from(LENIENCY),
)
def test_a_fact_that_does_not_matter_changes_nothing(
    outcome: Outcome, began: int, timeouts: bool, flags: tuple[bool, bool, bool]
) -> None:
    waits = member(soft_fail=flags[0], silent_fail=flags[1], never_fail=flags[2])
    seen = fact(outcome, began_at=waits.timeout_at + began)
    decision = decide({1: seen}, [waits], tick_ms=TICK, timeouts=timeouts)
    if not matters(seen.outcome, seen.began_at, waits.next_deadline, timeouts):
        assert (decision.verdicts, decision.grown) == ([], [])
    elif outcome is not Outcome.POKE_ERROR:  # silent_fail differs between the members
        assert decision.verdicts
