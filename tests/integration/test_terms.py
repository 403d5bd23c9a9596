"""Settings that must agree: another database, another number of ranges, two pools on one Redis or broker."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu.transport.memory import Channel

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, status
from sensorpool.errors import SchemaMismatch, SettingsError
from sensorpool.leases import redis_store
from sensorpool.model.states import State
from sensorpool.model.values import ShardRange
from sensorpool.publish import wire
from sensorpool.publish.publisher import Publisher
from sensorpool.service.presence import Presence, terms_of
from sensorpool.service.standalone import Standalone
from sensorpool.store import inspecting, pool_id
from sensorpool.store.database import Database
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker

SENSOR = "harness.scripted.ScriptedSensor"


@pytest.fixture
def make_settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings of pools on SQLite files, by name."""

    def make(name: str = "pool", **more: Any) -> Settings:
        url = f"sqlite:///{tmp_path / name}.db"
        upgrade(url)
        quick = {"heartbeat": 0.2, "lease_ttl": 1.0, "tick": 0.5, "poke_interval": 1.0, "sensors_enabled": SENSOR}
        return Settings.load(**({"database_url": url} | quick | more))

    return make


@pytest.fixture
def enter(make_worker: Callable[[Settings], Worker]) -> Iterator[Callable[..., Presence]]:
    """Enters workers with these settings in the roster."""
    made: list[Presence] = []

    def enter(settings: Settings, name: str = "celery@there") -> Presence:
        worker = Worker(settings)
        try:
            presence = Presence(
                settings, worker.roster, f"{name}/{len(made)}", terms_of(settings, worker.database), "0.1.0"
            )
            presence.enter()
        finally:
            worker.close()
        made.append(presence)
        return presence

    make_worker(Settings.load(database_url="sqlite://"))  # an empty Redis
    yield enter
    for presence in made:
        presence.leave()


@pytest.fixture
def make_pool_of() -> Iterator[Callable[[Settings], Pool]]:
    made: list[Pool] = []

    def make(settings: Settings) -> Pool:
        made.append(Pool(settings))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def register(pool: Pool, folder: Path, name: str = "x") -> int:
    return pool.register(SENSOR, {"folder": str(folder), "name": name}).id


def test_a_database_that_no_worker_serves_takes_no_registration(
    make_settings: Any, make_pool_of: Any, enter: Any, tmp_path: Path
) -> None:
    """Such a sensor would wait for ever while everything looks green."""
    enter(make_settings("served"))
    pool = make_pool_of(make_settings("other"))
    with pytest.raises(SettingsError, match=r"Redis serves the pool \w{32} \(celery@there\), and the database here is"):
        register(pool, tmp_path)
    assert pool.database.read(inspecting.count_by_state) == {State.CANCELLED: 1}
    assert any("Redis serves the pool" in problem for problem in findings.health(pool))
    assert any("Redis serves the pool" in problem for problem in status.status(pool)["problems"])


def test_while_no_worker_lives_anybody_may_register(make_settings: Any, make_pool_of: Any, tmp_path: Path) -> None:
    pool = make_pool_of(make_settings())
    assert register(pool, tmp_path)


def test_a_registrant_of_other_shards_nudges_what_the_workers_work_on(
    make_settings: Any, make_pool_of: Any, enter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(make_settings(shards=8))
    pool = make_pool_of(make_settings(shards=3))
    nudged: list[ShardRange] = []
    monkeypatch.setattr(Publisher, "nudge", lambda self, shard_range, **_: nudged.append(shard_range))
    register(pool, tmp_path)
    until("the nudge", lambda: nudged, 5)
    [only] = nudged
    assert only.shard_max - only.shard_min == 1250
    assert pool.leases.acquire(only, "worker").dirty
    assert [
        line for line in findings.health(pool) if line.startswith("SHARDS is 3 here and 8 at celery@there: stop all")
    ]


def test_a_worker_of_another_pool_does_not_start(make_settings: Any, enter: Any) -> None:
    first = enter(make_settings("one"))
    first.keep()
    with pytest.raises(SettingsError, match="Redis serves the pool"):
        enter(make_settings("two"))
    enter(make_settings("two", namespace="two"))


def test_a_worker_of_other_ranges_does_not_start_beside_others(make_settings: Any, enter: Any) -> None:
    enter(make_settings(), "celery@first").keep()
    enter(make_settings(), "celery@second")
    with pytest.raises(SettingsError, match="SHARDS is 9 here and 2 at celery@first, celery@second: stop all workers"):
        enter(make_settings(shards=9))


def test_a_dead_worker_is_in_nobodys_way_for_long(make_settings: Any, enter: Any) -> None:
    enter(make_settings())  # its entry is not renewed: the worker was killed
    began = time.monotonic()
    enter(make_settings(shards=9))
    assert time.monotonic() - began < 5


def test_a_worker_that_ends_makes_room_at_once(make_settings: Any, enter: Any) -> None:
    first = enter(make_settings(lease_ttl=60, heartbeat=20))
    first.leave()
    enter(make_settings(shards=9, lease_ttl=60, heartbeat=20))


def test_the_roster_comes_back_after_a_loss_of_redis(make_settings: Any, enter: Any, make_pool_of: Any) -> None:
    settings = make_settings()
    enter(settings).keep()
    pool = make_pool_of(settings)
    pool.leases.store.client.flushall()
    until("the entry", pool.workers, 5)


def test_a_database_without_an_id_is_refused(make_settings: Any) -> None:
    database = Database(make_settings().database_url)
    assert len(pool_id.read(database)) == 32
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM sensorpool_schema")
    with pytest.raises(SchemaMismatch, match="restore its table sensorpool_schema"):
        pool_id.read(database)
    database.dispose()


def test_jobs_of_another_pool_and_of_other_ranges(
    make_settings: Any,
    make_pool_of: Any,
    enter: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such jobs are refused, or sent on to the existing ranges; they are never poked as they come."""
    # another test of this process may have left entries of its pool's workers,
    monkeypatch.setattr(redis_store, "_embedded_server", None)
    monkeypatch.setattr(Channel, "queues", {})  # and jobs in the embedded broker: beat sends none while many wait
    settings = make_settings(shards=4, tick=60.0, poke_interval=60.0)
    seen: list[ShardRange] = []
    with caplog.at_level(logging.ERROR, "sensorpool"), Standalone(settings) as running:
        worker = running.worker
        ranges = list(running.app.sensorpool_runtime.ranges)
        acquire = worker.leases.acquire

        def acquired(shard_range: ShardRange, token: str) -> Any:
            seen.append(shard_range)
            return acquire(shard_range, token)

        monkeypatch.setattr(worker.leases, "acquire", acquired)
        until("beat's first ticks", lambda: all(state.last for _, state in worker.leases.look(ranges)), 60)
        seen.clear()
        theirs = Publisher(settings, lambda: "b" * 32)
        theirs.nudge(ShardRange(0, 2500))
        until("its refusal", lambda: "a job of another pool came" in caplog.text, 10)
        nameless = Publisher(settings)  # it does not know its pool
        nameless.nudge(ShardRange(100, 2600))
        until("what covers it", lambda: set(seen) == {ShardRange(0, 2500), ShardRange(2500, 5000)}, 10)
        assert "a beat or a registrant has other SHARDS" in caplog.text
        nameless.nudge(ShardRange(0, 5001), again=True)  # sent on once already
        nameless.nudge(ShardRange(7500, 10_000))
        until("the last one", lambda: ShardRange(7500, 10_000) in seen, 10)
        assert len(seen) == 3
        assert any("jobs come for the range 100-2600" in problem for problem in findings.health(make_pool_of(settings)))
        theirs.close()
        nameless.close()


def test_results_of_another_pool_are_dropped() -> None:
    assert wire.is_of_another_pool("theirs", "ours")
    assert not wire.is_of_another_pool("ours", "ours")
    assert not wire.is_of_another_pool(None, "ours")
    assert not wire.is_of_another_pool("theirs", None)


def test_two_first_processes_of_one_name_are_two(make_settings: Callable[..., Settings], enter: Any) -> None:
    """Each container's first process is number 1."""
    settings = make_settings()
    worker = Worker(settings)
    try:
        made = [
            Presence(settings, worker.roster, "celery@host/1", terms_of(settings, worker.database), "0.1.0")
            for _ in range(2)
        ]
        for presence in made:
            presence.enter()
        assert [str(each) for each in worker.roster.workers()] == ["celery@host"] * 2
        for presence in made:
            presence.leave()
        assert worker.roster.workers() == []
    finally:
        worker.close()
