"""Processes with unequal ticks do no harm, so `health` is green: pokes come at the longest tick."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.service import Service
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, status
from sensorpool.service.presence import Presence, terms_of
from sensorpool.worker.context import Worker

LONG = {"tick": 60.0, "poke_interval": 60.0}


@pytest.fixture
def monitor(make_pool: Callable[..., Pool], redis_url: str) -> Pool:
    """The pool as a host of the monitoring sees it, with the default tick of five seconds."""
    return make_pool(redis_url=redis_url, shards=1, poke_interval=5.0)


@pytest.fixture
def worker(monitor: Pool, make_worker: Callable[[Settings], Worker]) -> Iterator[Worker]:
    """A live worker whose tick is a minute; it has just looked at its range."""
    worker = make_worker(monitor.settings.model_copy(update=LONG))
    settings = worker.settings
    presence = Presence(settings, worker.roster, "celery@there/1", terms_of(settings, worker.database), "0.1.0")
    presence.enter()
    presence.keep()
    worker.run_job(monitor.ranges[0], "celery@there/a")
    yield worker
    presence.leave()


def later(monitor: Pool, seconds: float) -> None:
    """Have the monitor's database say that so many seconds have passed."""
    monitor.database.now = lambda _: round((time.time() + seconds) * 1000)  # type: ignore[method-assign]


def warned(monitor: Pool) -> list[str]:
    return [each.said for each in findings.doctor(monitor.settings) if "TICK" in each.said]


def test_health_goes_by_the_tick_of_the_workers(monitor: Pool, worker: Worker) -> None:
    later(monitor, 150)
    assert findings.health(monitor) == []
    [only] = status.status(monitor)["ranges"]
    assert (only["holder"], only["lag_s"] < 125) == ("celery@there/a", True)
    later(monitor, 200)
    assert [line for line in findings.health(monitor) if "ticks have stopped" in line]
    assert warned(monitor) == ["TICK is 5 here and 60 at celery@there: pokes come at the longer one"]


def test_health_goes_by_its_own_tick_while_no_other_is_known(monitor: Pool, worker: Worker) -> None:
    worker.leases.store.client.delete(worker.leases.store.pool_key("workers"))
    later(monitor, 150)
    assert [line for line in findings.health(monitor) if "ticks have stopped" in line]


def test_a_tick_that_is_none_counts_for_nothing(monitor: Pool, worker: Worker) -> None:
    client, key = worker.leases.store.client, worker.leases.store.pool_key("beat_tick")
    client.set(key, "x")
    assert monitor.roster.beat_tick() is None
    later(monitor, 200)
    assert [line for line in findings.health(monitor) if "ticks have stopped" in line]


def test_health_goes_by_the_tick_of_beat(make_service: Callable[..., Service]) -> None:
    service = make_service()
    service.worker()
    beat = service.beat(**{f"SENSORPOOL_{name.upper()}": str(value) for name, value in LONG.items()})
    until("the first tick", service.is_ready)
    until("the note of beat", lambda: service.pool.roster.beat_tick() == LONG["tick"])

    def silence() -> float:
        now = service.pool.database.read(service.pool.database.now)
        return min(now - state.last for _, state in service.pool.leases.look(service.pool.ranges)) / 1000

    until("more than three ticks of the worker to pass", lambda: silence() > 3 * service.settings.tick + 1)
    assert findings.health(service.pool) == []
    assert warned(service.pool) == ["TICK is 1 here and 60 at beat: pokes come at the longer one"]
    beat.kill()
    store: Any = service.pool.leases.store
    assert 0 < store.client.pttl(store.pool_key("beat_tick")) <= 210_000, "the note of a dead beat is forgotten"
    store.client.delete(store.pool_key("beat_tick"))
    assert [line for line in findings.health(service.pool) if "ticks have stopped" in line]
