"""Ids are given out again when the tables are made anew or a dump is restored: Redis may still have the old ones."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.until import until
from sensorpool import Pool
from sensorpool.leases.lease import Leases
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.values import Registered
from sensorpool.store import inspecting
from sensorpool.worker.context import Worker
from tests.support.troubled import put_in_trouble, trouble_of

TICK, WINDOW = 0.1, 60.0
SENSOR = "harness.scripted.ScriptedSensor"
LACKS = "tests.support.sensors.answering.Nowhere"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    quick = {"shards": 1, "tick": TICK, "poke_interval": TICK, "poke_timeout": 30.0}
    return make_pool(sensors_enabled=[SENSOR, LACKS], infra_failure_window=WINDOW, **quick)


def register(pool: Pool, tmp_path: Any, script: str) -> Registered:
    [made] = pool.register_many(
        [
            {"sensor": SENSOR, "poke_context": {"folder": str(tmp_path), "name": script, "script": script}}
            if script
            else {"sensor": LACKS, "poke_context": {}}
        ],
        try_out=False,
    )
    return made


def leave(worker: Worker, pool: Pool, /, **known: Any) -> None:
    """Leave an old state, as a holder would."""
    now = pool.database.read(pool.database.now)
    held = worker.leases.acquire(pool.ranges[0], "before")
    assert not isinstance(held, str)
    held.lease.finish(RangeState(last=now - 1_000, **known))


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    time.sleep(TICK)
    return worker.run_job(pool.ranges[0], "us@here/1").as_dict()


def left(leases: Leases, pool: Pool) -> RangeState:
    return leases.look(pool.ranges)[0][1]


@pytest.mark.parametrize("script", ["infra", ""], ids=["infrastructure failures", "no process can poke it"])
def test_what_is_known_from_before_a_group_was_registered_counts_nothing(
    pool: Pool, worker: Worker, tmp_path: Any, script: str
) -> None:
    """A dump was restored: the pool is the same, and so are the ids."""
    made = register(pool, tmp_path, script)
    long_ago = pool.database.read(pool.database.now) - 3_600_000
    job(worker, pool)
    put_in_trouble(pool.database, [made.group_id], failing_since=long_ago, unpokeable_since=long_ago)
    leave(worker, pool, left={made.group_id: 0})
    assert job(worker, pool)["groups"] == 1
    row: Any = pool.database.read(inspecting.instance, made.id)
    assert row["state"] == "sensing", row["reason"]
    trouble = trouble_of(pool.database, made.group_id)
    since = trouble.failing_since if script else trouble.unpokeable_since
    assert since is not None
    assert since >= row["start_date"]


def test_what_is_of_another_pool_is_dropped(pool: Pool, worker: Worker, tmp_path: Any) -> None:
    made, shard_range = register(pool, tmp_path, "wait"), pool.ranges[0]
    note = key(shard_range, "note")

    def haunt(pool_id: str) -> None:
        worker.leases.put_in_flight(shard_range, [made.group_id])
        now = pool.database.read(pool.database.now)
        state = RangeState(last=now - 1_000, pool=pool_id, left={made.group_id: 0}, holder="before")
        worker.leases.store.client.set(key(shard_range, "state"), state.text())

    ours = pool.pool_id.get()
    assert ours is not None
    haunt("another")
    assert job(worker, pool)["poked"] == 1, "by a job, because it has no strike"
    assert trouble_of(pool.database, made.group_id).strikes == 0
    assert left(worker.leases, pool).pool == ours
    assert not worker.leases.store.client.exists(note)
    for known in (ours, ""):  # the holder did not know its own, while the database was away
        put_in_trouble(pool.database, [made.group_id])
        haunt(known)
        job(worker, pool)
        assert trouble_of(pool.database, made.group_id).strikes == 1
        until("its poke in a child", lambda: not worker.background.is_busy)


def test_a_process_that_outlives_the_tables_drops_nothing_of_the_new_ones(
    pool: Pool, worker: Worker, tmp_path: Any
) -> None:
    made = register(pool, tmp_path, "wait")
    job(worker, pool)
    with pool.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sensorpool_schema SET pool_id = 'made anew'")
    worker.pool_id._asked = -60.0  # it is not asked each moment
    leave(worker, pool, pool="made anew", left={made.group_id: 0})
    worker.leases.put_in_flight(pool.ranges[0], [made.group_id])
    job(worker, pool)
    assert left(worker.leases, pool).pool == "made anew"
    assert trouble_of(pool.database, made.group_id).strikes == 1
