"""A pool is dead when its ticks stop, and not when the triggerer itself stood still."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow")

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.triggerer import liveness
from sensorpool.airflow.triggerer.liveness import Liveness
from sensorpool.leases.range_state import RangeState

SWEEP = 15.0
DEAD_AFTER = 300.0


class Redis:
    """What the leases say of the last tick; it may be away."""

    last = 1
    is_away = False

    def look(self, _: Any) -> Any:
        """Look at the only range."""
        if self.is_away:
            raise ConnectionError("it is away")
        return [(0, RangeState(last=self.last))]


@pytest.mark.parametrize("is_away", [True, False], ids=["Redis is away", "the pool stood still too"])
def test_a_triggerer_that_stood_still_hands_nothing_back(is_away: bool) -> None:
    redis = Redis()
    pool: Any = SimpleNamespace(leases=redis, ranges=(), workers=lambda: None)
    looks = Liveness(pool, AirflowSettings(on_pool_dead="native", pool_dead_after=DEAD_AFTER), print)
    now = time.monotonic()
    assert looks.due_back(now, [1, 2, 3]) == []
    now += 10 * DEAD_AFTER
    redis.is_away = is_away
    assert looks.due_back(now, [1, 2, 3]) == [], "the pause was its own"
    redis.is_away, redis.last = False, 2
    assert looks.due_back(now + SWEEP, [1, 2, 3]) == []


def test_a_pool_without_ticks_is_dead_after_its_time() -> None:
    pool: Any = SimpleNamespace(leases=Redis(), ranges=(), workers=lambda: None)
    looks = Liveness(pool, AirflowSettings(on_pool_dead="native", pool_dead_after=DEAD_AFTER), print)
    began = now = time.monotonic()
    for looked_at in range(2, 2 + round(2 * DEAD_AFTER / SWEEP)):
        pool.leases.last = looked_at
        began = now = now + SWEEP
        assert looks.due_back(now, [1]) == [], "its ranges are quiet, and looked at"
    while not looks.due_back(now, [1]):
        now += SWEEP
    assert DEAD_AFTER <= now - began <= DEAD_AFTER + 2 * SWEEP
    assert liveness.LONGEST < DEAD_AFTER


@pytest.mark.parametrize(("on_pool_dead", "count"), [("native", round(SWEEP * 2.0)), ("wait", 0)])
def test_the_settings_say_how_many_go_back_from_a_dead_pool(on_pool_dead: str, count: int) -> None:
    pool: Any = SimpleNamespace(leases=Redis(), ranges=(), workers=lambda: None)
    ours = AirflowSettings.load(on_pool_dead=on_pool_dead, pool_dead_after=2 * SWEEP, hand_back_rate=2.0)
    looks, waiting = Liveness(pool, ours, print), range(1_000)
    now = time.monotonic()
    for look in range(1, 4):  # the first one sees a tick
        found = looks.due_back(now + look * SWEEP, waiting)
    assert found == list(range(count))


@pytest.mark.parametrize(
    ("on_pool_dead", "what"), [("native", "tasks go back to workers"), ("wait", "tasks wait for it")]
)
def test_the_waiting_tasks_are_told_once_that_nothing_is_poked(on_pool_dead: str, what: str) -> None:
    pool: Any = SimpleNamespace(leases=Redis(), ranges=(), workers=lambda: None)
    ours = AirflowSettings.load(on_pool_dead=on_pool_dead, pool_dead_after=2 * SWEEP)
    said: list[str] = []
    looks = Liveness(pool, ours, said.append)
    now = time.monotonic()
    for look in range(1, 6):
        looks.due_back(now + look * SWEEP, [1])
    assert said == [
        f"sensorpool: nothing is poked: no tick has finished for 30 s; {what}; `sensorpool health` says what is missing"
    ]
    pool.leases.last = 2
    for look in range(6, 8):
        looks.due_back(now + look * SWEEP, [1])
    assert said[1:] == ["sensorpool: the pool's ticks go on"]
