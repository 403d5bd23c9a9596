"""What is left of budgets in Redis: rates, pokes at once, and who waits."""

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.budgets import Budget

RATE = Budget("hive", 100.0, None)  # a bucket holds 75
AT_ONCE = Budget("hive", None, 4)
BOTH = Budget("hive", 100.0, 4)


class Granted(NamedTuple):
    """How many pokes may begin, and when to ask for the others."""

    pokes: int
    wait: float


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
    return BudgetsLeft(RedisStore(client), kept=40.0, tick=5.0)


@pytest.fixture
def ask(left: BudgetsLeft) -> Ask:
    """Asks for one budget."""

    def asks(budget: Budget, asker: str, wanted: int, *, waited: float = 0.0) -> Granted:
        names = [f"{asker}{n}" for n in range(wanted)]
        return Granted(*left.take(budget, asker, names, groups=wanted, waited=waited))

    return asks


def test_a_rate_is_kept_over_time(ask: Ask, now: list[float]) -> None:
    granted = 0
    for _ in range(1_000):
        granted += ask(RATE, "a", 1_000).pokes
        now[0] += 0.02
    assert granted == pytest.approx(100 * 20, rel=0.1)


def test_a_few_pokes_a_minute(ask: Ask, now: list[float]) -> None:
    seldom, granted = Budget("hive", 0.1, None), list[float]()
    for _ in range(600):
        if ask(seldom, "a", 5).pokes:
            granted.append(now[0])
        now[0] += 0.1
    assert len(granted) in {6, 7, 8}


def test_it_says_when_to_ask_again(ask: Ask, now: list[float]) -> None:
    assert ask(RATE, "a", 75) == Granted(75, 0.0)
    refused = ask(RATE, "a", 10)
    assert refused.pokes == 0
    assert 0.3 <= refused.wait <= 0.7
    now[0] += 0.5
    assert ask(RATE, "a", 100).pokes == 50


@pytest.mark.parametrize("per_second", [100.0, 1.0])
def test_no_asker_starves(ask: Ask, now: list[float], per_second: float) -> None:
    """Eight ranges want more than there is: each comes when it is told, or at a tick, where one is always the last."""
    random.seed(1)
    budget = Budget("hive", per_second, None)
    again = {f"range{n}": now[0] for n in range(8)}
    granted, since = dict.fromkeys(again, 0), dict.fromkeys(again, now[0])
    began, tick = now[0], 0.0
    while now[0] < began + 120:
        at_tick, tick = now[0] >= tick, max(tick, now[0] - now[0] % 5 + 5)
        for asker, at in again.items():
            if at <= now[0] or at_tick:
                grant = ask(budget, asker, 500, waited=now[0] - since[asker])
                granted[asker] += grant.pokes
                if grant.pokes:
                    since[asker] = now[0]
                again[asker] = now[0] + max(grant.wait, 0.05)
        now[0] += 0.05
    assert sum(granted.values()) == pytest.approx(120 * per_second, rel=0.12)
    assert min(granted.values()) > 120 * per_second / 8 / 4


def test_who_asks_no_more_holds_up_nobody_for_long(ask: Ask, now: list[float]) -> None:
    slow = Budget("hive", 1.0, None)
    ask(slow, "a", 2)
    assert ask(slow, "gone", 5).pokes == 0
    granted = 0
    for _ in range(60):
        now[0] += 1
        granted += ask(slow, "a", 5).pokes
    assert granted >= 35


def test_so_many_at_once_and_no_more(ask: Ask, left: BudgetsLeft, now: list[float]) -> None:
    assert ask(AT_ONCE, "a", 3).pokes == 3
    refused = ask(AT_ONCE, "b", 3)
    assert (refused.pokes, 0.15 <= refused.wait <= 0.35) == (1, True)
    assert ask(AT_ONCE, "c", 2).pokes == 0
    left.give_back([(AT_ONCE, "a0"), (AT_ONCE, "a2"), (AT_ONCE, "never")])
    assert ask(AT_ONCE, "c", 3).pokes == 2
    now[0] += 41  # a worker that does not tell has died
    assert ask(AT_ONCE, "d", 9).pokes == 4


def test_both_limits_hold(ask: Ask, left: BudgetsLeft, now: list[float]) -> None:
    granted = 0
    for _ in range(200):
        granted += ask(BOTH, "a", 100).pokes
        left.give_back((BOTH, f"a{n}") for n in range(4))
        now[0] += 0.001
    assert 75 <= granted <= 75 + 20 + 4


def test_who_waits_is_told(ask: Ask, left: BudgetsLeft, now: list[float]) -> None:
    ask(BOTH, "a", 9, waited=30)
    ask(BOTH, "b", 2, waited=90)
    assert left.look([BOTH]) == [(BOTH, 7, 90.0, 4)]
    now[0] += 15
    left.give_back((BOTH, f"a{n}") for n in range(4))
    assert left.look([BOTH]) == [(BOTH, 7, 105.0, 0)]
    ask(BOTH, "b", 2)
    assert left.look([BOTH]) == [(BOTH, 5, 45.0, 2)]
    now[0] += 30  # neither asks again
    assert left.look([BOTH])[0].waiting == 0


def test_a_clock_that_is_put_back_stops_nobody(ask: Ask, now: list[float]) -> None:
    ask(RATE, "a", 500)
    ask(RATE, "b", 500)
    now[0] -= 3_600
    ask(RATE, "a", 5)
    now[0] += 1
    assert ask(RATE, "a", 5).pokes == 5
    assert ask(RATE, "b", 5).pokes == 5
