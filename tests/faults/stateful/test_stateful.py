"""Register, re-register, cancel, load, poke, settle, publish, kill, freeze and wait, in any order, on both stores.

``SENSORPOOL_TEST_FAULTS=all`` runs 300 examples on SQLite in the place of 120, and on PostgreSQL 120 in the place
of 60. ``SENSORPOOL_TEST_FULL=1`` runs twenty times as many. ``SENSORPOOL_TEST_HUNT=250`` runs 250, and ends at the
first failure without shrinking it: the hunt for mutants uses it.
"""

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import delete

from sensorpool.config.settings import Settings
from sensorpool.instrumentation import failpoint
from sensorpool.leases import lease
from sensorpool.model import identity
from sensorpool.poke import bulk_call, unit
from sensorpool.store import transaction
from sensorpool.store.migrate import upgrade
from sensorpool.store.schema import group_trouble, outbox, poke_group, sensor_instance
from sensorpool.worker import background, breakers, dispatch, job
from sensorpool.worker import clock_watch as clock_module
from sensorpool.worker import load as load_module
from sensorpool.worker.chores import left_behind
from tests.faults.stateful.hands import RANGES, TICK
from tests.faults.stateful.machine import SENSOR, PoolMachine, squeezed
from tests.faults.stateful.simulated import ConditionSensor, SimulatedDatabase, Time
from tests.faults.stateful.world import World

STEPS = 40
FULL = 20 if os.environ.get("SENSORPOOL_TEST_FULL") else 1
ALL = FULL > 1 or os.environ.get("SENSORPOOL_TEST_FAULTS") == "all"
EXAMPLES = {"sqlite": 300 if ALL else 120, "postgres": 120 if ALL else 60}
HUNT = int(os.environ.get("SENSORPOOL_TEST_HUNT", "0"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database of each kind, with the tables in it."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    upgrade(made := f"sqlite:///{tmp_path / 'pool.db'}")
    return made


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The simulation's time, in the place of the real one."""
    made = Time()
    for module in (job, dispatch, background, breakers, lease, clock_module, transaction):
        monkeypatch.setattr(module, "time", made)
    for module in (bulk_call, unit):
        monkeypatch.setattr(module, "_monotonic", made.monotonic)
    return made


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the failpoints steps of actors, and watch loads."""
    real, real_load = failpoint.failpoint, load_module.load

    def reach(step: str) -> None:
        ConditionSensor.world.reach(step)

    def load(connection: Any, cache: Any, shard_range: Any, held: Any, *rest: Any) -> Any:
        loaded = real_load(connection, cache, shard_range, held, *rest)
        ConditionSensor.world.loaded(connection, held, loaded)
        return loaded

    for name, module in list(sys.modules.items()):
        if name.startswith("sensorpool.") and getattr(module, "failpoint", None) is real and module is not failpoint:
            monkeypatch.setattr(module, "failpoint", reach)
    monkeypatch.setattr(load_module, "load", load)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("sensorpool."):
            monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    monkeypatch.setattr(left_behind, "extensions", SimpleNamespace(load=lambda group: {}))


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hashcodes and digests collide where the world says so."""

    def sha256(text: bytes) -> Any:
        digest = squeezed(hashlib.sha256(text).digest(), ConditionSensor.world.hashing)
        return SimpleNamespace(digest=lambda: digest)

    monkeypatch.setattr(identity, "hashlib", SimpleNamespace(sha256=sha256))


@pytest.fixture
def machine(url: str, time: Time, steps: None, hashing: None) -> Iterator[type[PoolMachine]]:
    """The machine on one store."""
    made = Settings.load(
        database_url=url,
        sensors_enabled=(SENSOR,),
        shards=len(RANGES),
        shard_code_upper_limit=RANGES[-1].shard_max,
        tick=TICK / 1000,
        lease_ttl=30,
        heartbeat=5,
        job_time_limit=20,  # a job takes up no more pokes after 13 s
        poke_timeout=1,
        poke_concurrency=1,
        retention=10 * 365 * 86_400,
    )
    database = SimulatedDatabase(url)
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)

    def make_world() -> World:
        with database.engine.begin() as connection:
            for table in (sensor_instance, poke_group, group_trouble, outbox):
                connection.execute(delete(table))
        client.flushall()
        world = ConditionSensor.world = World(database, client, made, time)
        return world

    class Machine(PoolMachine):
        pass

    Machine.make_world = staticmethod(make_world)  # type: ignore[assignment]
    yield Machine
    database.dispose()


def test_the_guarantees_hold_whatever_happens(machine: type[PoolMachine], request: pytest.FixtureRequest) -> None:
    store = request.node.callspec.params["url"]
    profile = settings(
        max_examples=HUNT or EXAMPLES[store] * FULL,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    if HUNT:
        # Under CI=true Hypothesis takes the same examples whatever the seed: a hunt for a mutant goes on with others.
        profile = settings(profile, phases=[Phase.generate], derandomize=False)
    run_state_machine_as_test(machine, settings=profile)
