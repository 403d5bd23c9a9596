"""What a fact means for a member: the rules of BaseSensorOperator.execute, as a table."""

import json

import pytest

from sensorpool.model import Fact, Member
from sensorpool.settle import decide, matters
from sensorpool.states import Outcome

NOW = 1_700_000_000_000
TIMEOUT = 100_000


def state(outcome: Outcome, *, late: bool = False, joined: int = 1, timeouts: bool = True, **patience: object) -> str:
    """Return the state that a member takes, or 'sensing'."""
    context = {"poke_interval": 60.0, "timeout": TIMEOUT / 1000} | patience
    began = NOW + TIMEOUT if late else NOW + TIMEOUT - 1
    member = Member(7, 3, joined, NOW, NOW + TIMEOUT, NOW + TIMEOUT, json.dumps(context))
    fact = Fact(3, 1, began, outcome, "why")
    decision = decide({3: fact}, [member], tick_ms=1000, timeouts=timeouts)
    assert matters(fact, member.next_deadline, timeouts) or not decision.verdicts
    return str(decision.verdicts[0].state) if decision.verdicts else "sensing"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_nothing_applies_to_who_joined_after_the_load(outcome: Outcome) -> None:
    assert state(outcome, late=True, joined=2) == "sensing"


@pytest.mark.parametrize("late", [False, True])
def test_landed_is_success_and_skip_is_skipped_whenever(late: bool) -> None:
    assert state(Outcome.LANDED, late=late) == "success"
    assert state(Outcome.SKIP, late=late) == "skipped"


@pytest.mark.parametrize("outcome", [Outcome.NOT_LANDED, Outcome.POKE_TIMEOUT, Outcome.INFRA_FAILURE, Outcome.CRASHED])
def test_what_found_nothing_times_out_after_the_deadline_only(outcome: Outcome) -> None:
    assert state(outcome) == "sensing"
    assert state(outcome, late=True) == "failed"
    assert state(outcome, late=True, soft_fail=True) == "skipped"
    assert state(outcome, late=True, never_fail=True) == "failed"  # Airflow's, too
    assert state(outcome, late=True, silent_fail=True) == "failed"
    assert state(outcome, late=True, timeouts=False) == "sensing"
    assert state(outcome, late=True, soft_fail=True, execution_timeout=1.0) == "failed"


def test_an_error_fails_at_once_unless_the_sensor_says_otherwise() -> None:
    assert state(Outcome.POKE_ERROR) == "failed"
    assert state(Outcome.POKE_ERROR, soft_fail=True) == "failed"
    assert state(Outcome.POKE_ERROR, never_fail=True) == "skipped"
    assert state(Outcome.POKE_ERROR, silent_fail=True) == "sensing"
    assert state(Outcome.POKE_ERROR, silent_fail=True, late=True) == "failed"
    assert state(Outcome.FAIL) == "failed"
    assert state(Outcome.FAIL, soft_fail=True) == "skipped"
    assert state(Outcome.FAIL, never_fail=True) == "skipped"


def test_a_step_grows_when_its_time_has_come() -> None:
    context = {"poke_interval": 10.0, "timeout": 1000.0, "exponential_backoff": True, "max_wait": 40.0}
    member = Member(7, 3, 1, NOW, NOW + 1_000_000, NOW + 10_000, json.dumps(context))
    steps = []
    for _ in range(2):
        fact = Fact(3, 1, member.next_deadline, Outcome.NOT_LANDED)
        decision = decide({3: fact}, [member], tick_ms=1000, timeouts=True)
        assert not decision.verdicts
        member, step = decision.grown[0]
        steps.append((step, member.next_deadline - NOW))
    assert steps == [(20_000, 30_000), (40_000, 1_000_000)]
