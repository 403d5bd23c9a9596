"""Ids are given out again when the tables are made anew or a dump is restored: Redis may still have the old ones."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from sensorpool.model.unsettled import from_registration

from sensorpool import Pool
from sensorpool.leases.lease import Leases
from sensorpool.leases.range_state import RangeState
from sensorpool.model.values import Instance, Unsettled
from sensorpool.store import inspecting
from sensorpool.worker import job as cycle
from sensorpool.worker.context import Worker
from tests.support.builders import due_group

TICK, WINDOW = 0.1, 60.0
SENSOR = "sensorpool.testing.ScriptedSensor"
LACKS = "tests.support.sensors.answering.Nowhere"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    quick = {"shards": 1, "tick": TICK, "poke_interval": TICK, "poke_timeout": 30.0}
    return make_pool(sensors_enabled=[SENSOR, LACKS], infra_failure_window=WINDOW, **quick)


def register(pool: Pool, tmp_path: Any, script: str) -> Instance:
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
    return cycle.run(worker, pool.ranges[0], "us@here/1").as_dict()


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
    leave(worker, pool, infra={made.group_id: long_ago}, stranded={made.group_id: long_ago}, left=[made.group_id])
    assert job(worker, pool)["groups"] == 1
    row: Any = pool.database.read(inspecting.instance, made.id)
    assert row["state"] == "sensing", row["reason"]
    state = left(worker.leases, pool)
    [since] = state.infra.values() if script else state.stranded.values()
    assert since >= row["start_date"]


def test_nor_does_a_result_that_could_not_be_written_then() -> None:
    group = due_group(7)._replace(registered_at=1_000)
    known = {7: Unsettled(10, "why"), 8: Unsettled(10, "why")}
    assert from_registration(known, [group]) == {7: Unsettled(1_000, "why"), 8: Unsettled(10, "why")}
    later = {7: Unsettled(2_000, "why")}
    assert from_registration(later, [group]) == later


def test_what_is_of_another_pool_is_dropped(pool: Pool, worker: Worker, tmp_path: Any) -> None:
    made, shard_range = register(pool, tmp_path, "wait"), pool.ranges[0]
    now = pool.database.read(pool.database.now)

    def haunt(pool_id: str) -> None:
        worker.leases.suspects.mark(shard_range, [made.group_id], Suspicion.OVERRAN)
        worker.leases.suspects.count_overruns(shard_range, [made.group_id])
        worker.leases.unsettled.keep(shard_range, {made.group_id: Unsettled(now, "why")})
        leave(worker, pool, pool=pool_id, infra={9: now - 1_000}, left=[made.group_id])

    ours = pool.pool_id.get()
    assert ours is not None
    haunt("another")
    assert job(worker, pool)["poked"] == 1, "by a job, because it is no suspect"
    assert worker.leases.suspects.why(shard_range, made.group_id) is None
    assert worker.leases.suspects.overruns(shard_range, made.group_id) == 0
    assert worker.leases.unsettled.of([shard_range]) == {}
    assert (left(worker.leases, pool).pool, left(worker.leases, pool).infra) == (ours, {})
    for known in (ours, ""):  # the holder did not know its own, while the database was away
        haunt(known)
        job(worker, pool)
        assert worker.leases.suspects.why(shard_range, made.group_id) == Suspicion.OVERRAN
        assert left(worker.leases, pool).infra == {9: now - 1_000}


def test_a_process_that_outlives_the_tables_drops_nothing_of_the_new_ones(
    pool: Pool, worker: Worker, tmp_path: Any
) -> None:
    register(pool, tmp_path, "wait")
    job(worker, pool)
    with pool.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sensorpool_schema SET pool_id = 'made anew'")
    worker.pool_id._asked = -60.0  # it is not asked each moment
    leave(worker, pool, pool="made anew", infra={9: pool.database.read(pool.database.now) - 1_000})
    before = left(worker.leases, pool)
    job(worker, pool)
    assert (left(worker.leases, pool).pool, left(worker.leases, pool).infra) == ("made anew", before.infra)
