"""A Redis that does not answer costs a registration little: the hint to the workers only saves time."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.client import nudger
from sensorpool.model.states import State
from tests.faults.proxy import Proxy

SENSOR = "harness.scripted.ScriptedSensor"
PATIENCE = 0.3


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """Stands before Redis."""
    with Proxy.before(redis_url) as between:
        yield between


@pytest.fixture
def pool(postgres_database: str, redis_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(nudger, "_PATIENCE", PATIENCE)
    made = Pool(Settings.load(database_url=postgres_database, redis_url=proxy.url(redis_url), sensors_enabled=SENSOR))
    yield made
    made.close()


def register(pool: Pool, name: str) -> Any:
    return pool.register(SENSOR, {"folder": "/nowhere", "name": name}, dag_id="d", task_id=name, run_id="r")


def test_a_redis_that_hangs_costs_a_registration_little(pool: Pool, proxy: Proxy) -> None:
    proxy.swallow()
    began = time.monotonic()
    made = [register(pool, f"n{number}") for number in range(3)]
    assert time.monotonic() - began < 30 * PATIENCE
    assert all(each.created for each in made)
    proxy.reset()
    proxy.heal()
    assert pool.wait([each.id for each in made], 0) == {each.id: State.SENSING for each in made}


def test_hints_begin_again_once_redis_answers(pool: Pool, proxy: Proxy) -> None:
    proxy.refuse()
    register(pool, "lost")
    proxy.heal()
    numbers = count()
    until("a hint", lambda: register(pool, f"n{next(numbers)}") and is_dirty(pool), every=0.01)


def is_dirty(pool: Pool) -> bool:
    return any(pool.leases.store.client.exists(pool.leases.store.key(each, "dirty")) for each in pool.ranges)
