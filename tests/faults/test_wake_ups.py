"""Fault 53: a storm of wake-ups. It costs each condition a poke a second, and makes no other late."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.scripted import land, pokes
from harness.until import until
from sensorpool.leases.waking import GAP
from tests.faults.stand import Stand
from tests.faults.trial import lasts

SENSOR = "harness.scripted.ScriptedSensor"
GROUPS, HOUR = 200, 3_600.0
THREADS, SPAN = 8, 6.0  # seconds


@pytest.fixture
def storm(stand: Stand) -> Callable[[], int]:
    """Returns a function that wakes all conditions of a bucket for a while, as fast as it can; it returns how often."""

    def blow() -> int:
        ends = time.monotonic() + SPAN

        def wake(_: int) -> int:
            times = 0
            while time.monotonic() < ends:
                stand.service.pool.wake(prefix="s3://storm/")
                times += 1
            return times

        with ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(wake, range(THREADS)))

    return blow


def test_a_storm_of_wake_ups(stand: Stand, storm: Callable[[], int]) -> None:
    service, folder = stand.service, stand.service.folder
    names = [f"woken{n}" for n in range(GROUPS)]
    registrations: list[dict[str, Any]] = [
        {
            "sensor": SENSOR,
            "poke_context": {"folder": str(folder), "name": name},
            "poke_interval": HOUR,
            "location": f"s3://storm/{name}",
        }
        for name in names
    ]
    made = service.pool.register_many(registrations)
    until("a poke of each", lambda: pokes(folder).keys() >= set(names))
    trial = stand.trial("53 a storm of wake-ups (the others' lateness)", measures=False)
    with trial.fault():
        since, began = trial.wait_for_pokes(1), time.time()
        assert storm() > 10 * SPAN / GAP, "many more wake-ups than there are seconds"
        took = time.time() - began
        lasts(3 * GAP)
        had = {name: sum(poke.at > began for poke in pokes(folder)[name]) for name in names}
        assert min(had.values()) >= 1, "each was poked"
        seconds = took + 3 * GAP  # in each, a job for wake-ups and that of the tick; and one of either at both ends
        assert max(had.values()) <= seconds / GAP + seconds / service.settings.tick + 4, "and not much more often"
    trial.record.recovery.append(max(0.0, trial.lateness(since)))
    assert trial.record.recovery[-1] < 3
    for name in names:
        land(folder, name)
    service.pool.wake(prefix="s3://storm/")
    trial.end()
    assert set(service.pool.wait(made, 60).values()) == {"success"}, "long before the hour"


def test_a_wake_up_is_lost_with_redis(stand: Stand) -> None:
    """It costs time alone: the condition is poked in its turn."""
    service, folder = stand.service, stand.service.folder
    made = service.pool.register(SENSOR, {"folder": str(folder), "name": "lost"}, location="s3://lost/x")
    until("a poke", lambda: pokes(folder).get("lost"))
    land(folder, "lost")
    service.pool.leases.waking.wake({service.pool.range_of(made.shardcode): [made.group_id]})
    service.pool.leases.store.client.flushall()
    assert service.pool.wait(made, 60) == {made.id: "success"}
