"""What is left of budgets in Redis: rates, pokes at once, lines of askers, and what is not ours there."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from sensorpool.leases.budgets import Asked, BudgetsLeft, Granted
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.budgets import Budget

RATE = Budget("hive", 100.0, None)  # a bucket holds 75
AT_ONCE = Budget("hive", None, 4)
BOTH = Budget("hive", 100.0, 4)

Ask = Callable[..., Granted]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of Redis, in seconds."""
    clock = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    return clock


@pytest.fixture
def left(client: Any) -> BudgetsLeft:
    """The budgets of an empty pool."""
    return BudgetsLeft(RedisStore(client), kept=40.0)


@pytest.fixture
def ask(left: BudgetsLeft) -> Ask:
    """Asks for one budget."""

    def asks(budget: Budget, asker: str, wanted: int, **more: Any) -> Granted:
        [granted] = left.take([Asked(budget, asker, wanted, **more)])
        return granted

    return asks


def test_a_rate_is_kept_over_time(ask: Ask, now: list[float]) -> None:
    granted = 0
    for _ in range(1000):
        granted += ask(RATE, "0-10", 1_000).pokes
        now[0] += 0.02
    assert granted == pytest.approx(100 * 20, rel=0.1)


def test_a_few_pokes_a_minute(ask: Ask, now: list[float]) -> None:
    seldom, granted = Budget("hive", 0.1, None), list[float]()
    for _ in range(600):
        if ask(seldom, "0-10", 5).pokes:
            granted.append(now[0])
        now[0] += 0.1
    assert len(granted) in {6, 7}


def test_askers_take_turns(ask: Ask, now: list[float]) -> None:
    """Eight ranges want more than there is: each comes again when it is told, and all get alike."""
    again = {f"range{n}": now[0] for n in range(8)}
    granted = dict.fromkeys(again, 0)
    until = now[0] + 60
    while now[0] < until:
        for asker, at in again.items():
            if at <= now[0]:
                grant = ask(RATE, asker, 500)
                granted[asker] += grant.pokes
                again[asker] = now[0] + max(grant.wait, 0.05)
        now[0] += 0.05
    assert sum(granted.values()) == pytest.approx(6_000, rel=0.12)
    assert max(granted.values()) < 1.35 * min(granted.values())


def test_who_comes_before_its_turn_gets_nothing_and_keeps_the_turn(ask: Ask, now: list[float]) -> None:
    assert ask(RATE, "a", 75) == Granted(75, 0.0)
    first = ask(RATE, "b", 10)
    assert first.pokes == 0
    now[0] += first.wait / 2
    second = ask(RATE, "b", 10)
    assert second.pokes == 0
    assert second.wait == pytest.approx(first.wait / 2, abs=0.01)
    now[0] += second.wait
    assert ask(RATE, "b", 10).pokes == 10


def test_what_is_taken_whatever_is_left_is_missing_afterwards(ask: Ask, now: list[float]) -> None:
    assert ask(RATE, "a", -500).pokes == 500
    assert ask(RATE, "b", 10).pokes == 0
    now[0] += 2
    assert ask(RATE, "b", 10).pokes == 0
    now[0] += 4
    assert ask(RATE, "b", 10).pokes == 10


def test_so_many_at_once_and_no_more(ask: Ask, now: list[float]) -> None:
    assert ask(AT_ONCE, "a", 3).pokes == 3
    assert ask(AT_ONCE, "b", 3).pokes == 1
    assert ask(AT_ONCE, "b", 2).pokes == 0
    assert ask(AT_ONCE, "a", 3, done=2).pokes == 2
    assert ask(AT_ONCE, "b", 3, done=1).pokes == 1
    now[0] += 41  # a worker that does not tell has died
    assert ask(AT_ONCE, "c", 9).pokes == 4


def test_what_a_round_has_not_given_back_ends_by_itself(ask: Ask, now: list[float]) -> None:
    """Later rounds of the same range ask on and on, and must not keep it alive."""
    assert ask(AT_ONCE, "a", 9, holder="a/1").pokes == 4
    granted = 0
    for number in range(200):
        granted += ask(AT_ONCE, "a", 9, done=granted, holder=f"a/{2 + number}").pokes
        now[0] += 0.25
    assert granted >= 4, "after 41 s"


def test_a_backend_that_hangs_does_not_keep_the_others_under_its_budget_from_their_pokes(
    ask: Ask, now: list[float]
) -> None:
    """A thousand groups are poked apart each minute, whatever the budget of ten a second holds."""
    rate = Budget("*", 10.0, None)
    again, granted = now[0], 0
    for _ in range(600):
        for asker in ("x", "y"):
            ask(rate, asker, -17)
        if again <= now[0]:
            grant = ask(rate, "healthy", 10)
            granted += grant.pokes
            again = now[0] + max(grant.wait, 0.05)
        now[0] += 1
    assert granted > 600, "a poke a second at least"
    assert ask(rate, "late", 1).wait < 7


def test_both_limits_hold(ask: Ask, now: list[float]) -> None:
    assert ask(BOTH, "a", 100).pokes == 4
    granted = 4
    for _ in range(200):
        granted += ask(BOTH, "a", 100, done=4).pokes
        now[0] += 0.001
    assert 75 <= granted <= 75 + 20 + 4


def test_a_question_without_a_wish_only_gives_back(ask: Ask, left: BudgetsLeft, now: list[float]) -> None:
    ask(AT_ONCE, "a", 9)
    assert left.look([AT_ONCE])[0][1:] == (5, 1.0, 4)
    ask(AT_ONCE, "a", 0, done=3, stretch=8.0, poked=4)
    assert left.look([AT_ONCE])[0][1:] == (5, 2.0, 1)
    ask(AT_ONCE, "a", 1)
    assert left.look([AT_ONCE])[0][1:] == (0, 1.0, 2)


def test_several_budgets_are_asked_at_once(left: BudgetsLeft) -> None:
    other = Budget("other", None, 1)
    assert [each.pokes for each in left.take([Asked(RATE, "a", 5), Asked(other, "a", 5)])] == [5, 1]


@pytest.mark.parametrize(
    "text", ["", "x", "1", "9" * 300 + " 1", "nan 1", "1e309 1", "-5 -5", "1 2 3", "1 99999999999999"]
)
@pytest.mark.parametrize("field", ["bucket", "line", "turn:a", "busy:a", "busy:b", "waits:a", "stretch"])
def test_what_is_not_ours_is_passed_over(ask: Ask, left: BudgetsLeft, client: Any, field: str, text: str) -> None:
    client.hset(left._key(BOTH), field, text)
    left.look([BOTH])
    assert 1 <= ask(BOTH, "a", 4).pokes <= 4
    assert left.look([BOTH])[0].waiting <= 3


def test_a_key_of_another_type_counts_as_lost(ask: Ask, left: BudgetsLeft, client: Any) -> None:
    client.set(left._key(RATE), "not ours")
    assert left.look([RATE])[0].waiting == 0
    assert ask(RATE, "a", 5).pokes == 5


def test_a_clock_that_is_put_back_stops_nobody(ask: Ask, now: list[float]) -> None:
    ask(RATE, "a", 500)
    ask(RATE, "b", 500)
    now[0] -= 3_600
    assert ask(RATE, "a", 5).pokes == 5
    assert ask(RATE, "b", 5).pokes == 5
