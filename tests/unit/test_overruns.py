"""Overruns in a row are counted; after too many, waiters that can poke by themselves are handed back."""

from typing import Any

import pytest

from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import Report, ShardRange
from sensorpool.settle.decide import decide
from sensorpool.settle.overruns import counted, is_last, is_overrun
from tests.support.builders import START, TIMEOUT, due_group, fact, member

RANGE = ShardRange(0, 10)


@pytest.fixture
def leases(client: Any) -> Leases:
    return Leases(RedisStore(client), lease_ttl=60)


@pytest.mark.parametrize("takes_back", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("in_a_row", "limit"), [(1, 3), (2, 3), (3, 3), (4, 3), (3, 0), (0, 3), (1, 1)])
def test_who_is_handed_back(in_a_row: int, limit: int, late: bool, takes_back: bool) -> None:
    began_at = START + TIMEOUT if late else START + TIMEOUT - 1
    seen = counted(fact(Outcome.POKE_TIMEOUT, began_at=began_at, reason="too long"), in_a_row, limit)
    waits = member()._replace(takes_back=takes_back)
    verdicts = decide({1: seen}, [waits], tick_ms=5_000, timeouts=True).verdicts
    found = [(verdict.state, verdict.ending) for verdict in verdicts]
    if takes_back and limit and (late or in_a_row >= limit):
        assert found == [(State.CANCELLED, Ending.HANDED_BACK)]
    else:
        assert found == ([(State.FAILED, Ending.TIMEOUT)] if late else [])
    assert is_last(seen) is (0 < limit <= in_a_row)
    for verdict in verdicts:
        assert verdict.reason is not None
        assert ("times in a row" in verdict.reason) is (in_a_row > 1)


@pytest.mark.parametrize("in_a_row", [1, 3])
def test_an_execution_timeout_ends_a_task_wherever_it_pokes(in_a_row: int) -> None:
    seen = counted(fact(Outcome.POKE_TIMEOUT, began_at=START + TIMEOUT), in_a_row, 3)
    for execution_timeout, ending in ((TIMEOUT / 2_000, Ending.EXECUTION_TIMEOUT), (TIMEOUT, Ending.HANDED_BACK)):
        waits = member(execution_timeout=execution_timeout)._replace(takes_back=True)
        (verdict,) = decide({1: seen}, [waits], tick_ms=5_000, timeouts=True).verdicts
        assert verdict.ending is ending


def test_while_the_clock_is_in_doubt_only_the_count_hands_back() -> None:
    waits = member()._replace(takes_back=True)
    for in_a_row, ends in ((2, False), (3, True)):
        seen = counted(fact(Outcome.POKE_TIMEOUT, began_at=START + TIMEOUT), in_a_row, 3)
        assert bool(decide({1: seen}, [waits], tick_ms=5_000, timeouts=False).verdicts) is ends


def test_a_poke_whose_process_was_ended_has_not_overrun() -> None:
    group = due_group()
    assert is_overrun(Report(group, 0.0, Outcome.POKE_TIMEOUT, "too long", None, 10.0), 10.0)
    assert not is_overrun(Report(group, 0.0, Outcome.POKE_TIMEOUT, "killed from outside"), 10.0)
    assert not is_overrun(Report(group, 0.0, Outcome.NOT_LANDED, None, None, 10.0), 10.0)


def test_they_are_counted_in_a_row(leases: Leases) -> None:
    assert leases.suspects.count_overruns(RANGE, [1, 2]) == {1: 1, 2: 1}
    assert leases.suspects.count_overruns(RANGE, [1]) == {1: 2}
    assert (
        leases.suspects.overruns(RANGE, 1),
        leases.suspects.overruns(RANGE, 2),
        leases.suspects.overruns(RANGE, 3),
    ) == (2, 1, 0)
    assert leases.suspects.count_overrunning([RANGE, ShardRange(10, 20)]) == 2
    leases.suspects.clear(RANGE, [1])
    assert leases.suspects.count_overruns(RANGE, [1, 2]) == {1: 1, 2: 2}
    assert 0 < leases.store.client.ttl(leases.store.key(RANGE, "overruns")) <= 86_400
    assert leases.suspects.count_overruns(RANGE, []) == {}


@pytest.mark.parametrize("garbled", ["", "x", "-1", "1e3", "٣", "9" * 400])
def test_a_garbled_count_counts_as_lost(leases: Leases, garbled: str) -> None:
    leases.store.client.hset(leases.store.key(RANGE, "overruns"), "1", garbled)
    assert leases.suspects.overruns(RANGE, 1) == 0
    assert leases.suspects.count_overruns(RANGE, [1]) == {1: 1}


def test_a_key_that_is_not_ours_keeps_nobody_suspect(leases: Leases) -> None:
    leases.suspects.mark(RANGE, [1], Suspicion.OVERRAN)
    leases.store.client.set(leases.store.key(RANGE, "overruns"), "text")
    leases.suspects.clear(RANGE, [1])
    assert leases.suspects.of(RANGE) == []
    assert leases.suspects.count_overrunning([RANGE]) == 0
