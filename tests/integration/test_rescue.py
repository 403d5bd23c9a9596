"""Rescue: what it prunes, what it ends, what it sends; each on an SQLite file, in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, text

from sensorpool import Pool, Settings
from sensorpool.migrate import upgrade
from sensorpool.publish import listen
from sensorpool.rescue import OUTBOX_AGE, Place, rescue
from sensorpool.schema import outbox, poke_group
from sensorpool.states import State
from sensorpool.store import looking
from sensorpool.worker import Worker

SCRIPTED = "sensorpool.testing.ScriptedSensor"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    made = Pool(Settings.load(database_url=url, sensors_enabled=SCRIPTED, retention=3600))
    yield made
    made.close()


@pytest.fixture
def worker(pool: Pool) -> Iterator[Worker]:
    made = Worker(pool.settings)
    yield made
    made.close()


def register(pool: Pool, name: str) -> int:
    return pool.register(SCRIPTED, {"folder": "/nowhere", "name": name}).id


def test_terminal_instances_older_than_the_retention_go(pool: Pool, worker: Worker) -> None:
    old, young, waiting = register(pool, "a"), register(pool, "b"), register(pool, "c")
    pool.cancel(old)
    pool.cancel(young)
    with pool.database.engine.begin() as connection:
        connection.execute(
            text("UPDATE sensor_instance SET settled_at = settled_at - 3700000 WHERE id = :id"), {"id": old}
        )
        # one that has waited for longer than the retention, and waits still
        connection.execute(text("UPDATE sensor_instance SET start_date = 1 WHERE id = :id"), {"id": waiting})
    assert rescue(worker, Place()).pruned == 1
    kept = pool.database.read(lambda connection: looking.states(connection, [old, young, waiting]))
    assert kept == {young: State.CANCELLED, waiting: State.SENSING}


def test_an_instance_whose_group_was_deleted_by_hand_fails_with_the_reason(pool: Pool, worker: Worker) -> None:
    stray, other = register(pool, "a"), register(pool, "b")
    group_id = pool.database.read(lambda connection: looking.instance(connection, stray))["group_id"]
    with pool.database.engine.begin() as connection:
        connection.execute(delete(poke_group).where(poke_group.c.id == group_id))
    assert rescue(worker, Place()).strays == 1
    assert pool.wait([stray, other], 0) == {stray: State.FAILED, other: State.SENSING}
    assert "by hand" in pool.database.read(lambda connection: looking.instance(connection, stray))["reason"]


def test_a_group_that_nobody_waits_for_goes(pool: Pool, worker: Worker) -> None:
    gone = register(pool, "a")
    register(pool, "b")
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET state = 'cancelled' WHERE id = :id"), {"id": gone})
    assert rescue(worker, Place()).strays == 1
    assert pool.database.read(looking.count_waiting) == (1, 1)


def test_what_a_dead_process_did_not_publish_is_sent(pool: Pool, worker: Worker) -> None:
    settled = register(pool, "a")
    pool.cancel(settled)
    now = pool.database.read(pool.database.now)
    rows = [
        {"created_at": now - 2 * OUTBOX_AGE, "instance_ids": f"[{settled}]"},
        {"created_at": now, "instance_ids": f"[{settled}]"},  # young: somebody is about to send it
    ]
    with pool.database.engine.begin() as connection:
        connection.execute(insert(outbox), rows)
    with listen(pool.settings) as bodies:
        assert rescue(worker, Place()).published == 1
        body = next(bodies)
    assert [each["id"] for each in body["settled"]] == [settled]
    assert pool.database.read(looking.oldest_unpublished) == now


def test_what_was_settled_before_the_clock_was_put_back_is_sent(pool: Pool, worker: Worker) -> None:
    settled = register(pool, "a")
    pool.cancel(settled)
    row = {"created_at": pool.database.read(pool.database.now) + 3_600_000, "instance_ids": f"[{settled}]"}
    with pool.database.engine.begin() as connection:
        connection.execute(insert(outbox), row)
    assert rescue(worker, Place()).published == 1
    assert pool.database.read(looking.oldest_unpublished) is None


def test_the_walk_goes_on_where_it_stopped(pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.rescue.WINDOW", 2)
    monkeypatch.setattr("sensorpool.rescue.WINDOWS", 1)
    ids = [register(pool, f"n{number}") for number in range(5)]
    for instance_id in ids:
        pool.cancel(instance_id)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET settled_at = 1"))
    place = Place()
    assert [rescue(worker, place).pruned for _ in range(3)] == [2, 2, 1]
    assert place.instance_id == 0
