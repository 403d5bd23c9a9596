"""Rescue: the rows that it prunes, ends and sends; on an SQLite file, in this process."""

import json
from collections.abc import Callable

import pytest
from sqlalchemy import insert, select, text

from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.errors import Unreachable
from sensorpool.model.states import State
from sensorpool.publish import listen
from sensorpool.publish.retrying import AGE
from sensorpool.store import inspecting
from sensorpool.store.schema import group_trouble, outbox
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.rescue import go_on, rescue
from tests.support.troubled import put_in_trouble

SCRIPTED = "harness.scripted.ScriptedSensor"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(sensors_enabled=SCRIPTED, retention=3600, on_settled_tasks="theirs.go_on")


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
        # an instance that has waited for longer than the retention, and still waits
        connection.execute(text("UPDATE sensor_instance SET start_date = 1 WHERE id = :id"), {"id": waiting})
    assert rescue(worker, Place()).pruned == 1
    kept = pool.database.read(inspecting.states, [old, young, waiting])
    assert kept == {young: State.CANCELLED, waiting: State.SENSING}


def test_what_a_join_waits_for_stays(pool: Pool, worker: Worker) -> None:
    """A join asks how its instances ended, however long ago that was."""
    ended, other, waits = register(pool, "a"), register(pool, "b"), register(pool, "c")
    join = pool.all_of([ended, waits])
    pool.cancel(ended)
    pool.cancel(other)
    with pool.database.engine.begin() as connection:
        connection.execute(
            text("UPDATE sensor_instance SET settled_at = settled_at - 3700000 WHERE state <> 'sensing'")
        )
        odd = "UPDATE poke_group SET poke_context = '{\"instances\": 7}' WHERE location IS NULL"
        connection.execute(text(odd))  # by hand, and of no join
    assert rescue(worker, Place()).pruned == 1
    assert pool.database.read(inspecting.states, [ended, other]).keys() == {ended}
    by_hand = pool.register("sensorpool.joins.AllOf", {"instances": [ended, waits]})
    assert by_hand.group_id == join.group_id
    pool.cancel(join)
    assert rescue(worker, Place()).pruned == 0
    pool.cancel(by_hand)
    assert rescue(worker, Place()).pruned == 1
    assert pool.database.read(inspecting.states, [ended, other]) == {}


def test_what_a_dead_process_did_not_publish_is_sent(pool: Pool, worker: Worker) -> None:
    settled = register(pool, "a")
    pool.cancel(settled)
    now = pool.database.read(pool.database.now)
    rows = [
        {"created_at": now - 2 * AGE, "instance_ids": f"[{settled}]"},
        {"created_at": now, "instance_ids": f"[{settled}]"},  # young: its own process is about to send it
    ]
    with pool.database.engine.begin() as connection:
        connection.execute(insert(outbox), rows)
    with listen(pool.settings) as bodies:
        assert rescue(worker, Place()).published == 1
        body = next(bodies)
    assert [each["id"] for each in body["settled"]] == [settled]
    assert pool.database.read(inspecting.oldest_unpublished) == now


def test_what_was_settled_before_the_clock_was_put_back_is_sent(pool: Pool, worker: Worker) -> None:
    settled = register(pool, "a")
    pool.cancel(settled)
    row = {"created_at": pool.database.read(pool.database.now) + 3_600_000, "instance_ids": f"[{settled}]"}
    with pool.database.engine.begin() as connection:
        connection.execute(insert(outbox), row)
    assert rescue(worker, Place()).published == 1
    assert pool.database.read(inspecting.oldest_unpublished) is None


def test_the_walk_goes_on_where_it_stopped(pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.worker.chores.round.ROWS", 2)
    monkeypatch.setattr("sensorpool.worker.chores.round.PAGES", 1)
    ids = [register(pool, f"n{number}") for number in range(5)]
    for instance_id in ids:
        pool.cancel(instance_id)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET settled_at = 1"))
    place = Place()
    assert [rescue(worker, place).pruned for _ in range(4)] == [2, 2, 1, 0]
    assert place.instances == 0


def test_another_process_goes_on_where_the_last_round_came_to(
    pool: Pool, make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sensorpool.worker.chores.round.ROWS", 2)
    monkeypatch.setattr("sensorpool.worker.chores.round.PAGES", 1)
    for number in range(6):
        register(pool, f"n{number}")
    workers = [make_worker(pool.settings) for _ in range(2)]
    places = [Place(), Place()]
    reached = []
    for number in range(2):
        go_on(workers[number], places[number])
        reached.append(places[number].instances)
    fresh = Place()
    go_on(workers[0], fresh)
    assert [*reached, fresh.instances] == [2, 4, 6], "a new process goes on, too"


def test_without_redis_a_process_goes_on_by_itself(pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.worker.chores.round.ROWS", 1)
    monkeypatch.setattr("sensorpool.worker.chores.round.PAGES", 1)
    register(pool, "a")
    register(pool, "b")
    place = Place()

    def away(*_: object, **__: object) -> None:
        raise Unreachable("Redis does not answer")

    monkeypatch.setattr(worker.leases.store, "call", away)
    for instance_id in (1, 2):
        go_on(worker, place)
        assert place.instances == instance_id


def test_a_place_of_another_version_changes_nothing() -> None:
    place = Place(instances=3, groups=4)
    place.go_to("[[1, 1, 0], [1, 1, 0], 1, 1]")
    assert place == Place(instances=3, groups=4)
    other = Place()
    other.go_to(place.as_text())
    assert other == place


def test_groups_beyond_a_limit_that_was_lowered_are_brought_into_the_ranges(
    pool: Pool, make_worker: Callable[[Settings], Worker]
) -> None:
    ids = [register(pool, f"n{number}") for number in range(40)]
    lowered = make_worker(pool.settings.model_copy(update={"shards": 2, "shard_code_upper_limit": 100}))
    lost = [id for id in ids if _shardcode(pool, id) >= 100]
    assert lost, "most are beyond it"
    assert rescue(lowered, Place()).folded == len(lost)
    assert all(_shardcode(pool, instance_id) < 100 for instance_id in ids)
    assert rescue(lowered, Place()).folded == 0


def _shardcode(pool: Pool, instance_id: int) -> int:
    group_id = pool.database.read(inspecting.instance, instance_id)["group_id"]
    query = text("SELECT shardcode FROM poke_group WHERE id = :id")
    return int(pool.database.read(lambda connection: connection.execute(query, {"id": group_id}).scalar_one()))


def test_an_operator_sees_an_instance_whose_shardcode_is_beyond_the_limit(
    pool: Pool, make_pool: Callable[..., Pool]
) -> None:
    shown = [instances.show(pool, register(pool, f"n{number}")) for number in range(10)]
    lowered = make_pool(sensors_enabled=SCRIPTED, shards=2, shard_code_upper_limit=100)
    assert [instances.show(lowered, each["id"])["state"] for each in shown] == [State.SENSING] * 10


def test_troubles_whose_group_is_gone_are_forgotten(pool: Pool, worker: Worker) -> None:
    stays, goes = (pool.register(SCRIPTED, {"folder": "/nowhere", "name": name}) for name in ("a", "b"))
    put_in_trouble(pool.database, [stays.group_id, goes.group_id], overruns=1)
    pool.cancel(goes.id)
    rescue(worker, Place())
    with pool.database.engine.connect() as connection:
        assert connection.execute(select(group_trouble.c.group_id)).scalars().all() == [stays.group_id]


@pytest.mark.parametrize(
    "options", [{"countdown": "soon"}, {"countdown": 1e12}, {"expires": "tomorrow"}, {"queue": {"a": 1}}], ids=str
)
def test_a_signature_that_cannot_be_sent_stops_no_other(pool: Pool, worker: Worker, options: dict[str, object]) -> None:
    """A registration refuses such a signature; this row was edited by hand."""
    bad, other = (
        pool.register(SCRIPTED, {"folder": "/nowhere", "name": name}, on_settled={"task": "theirs.go_on"})
        for name in ("a", "b")
    )
    written = json.dumps({"on_settled": [{"task": "theirs.go_on", "options": options}]})
    change = text("UPDATE sensor_instance SET on_settled = :written WHERE id = :id")
    with pool.database.engine.begin() as connection:
        connection.execute(change, {"written": written, "id": bad.id})
    with listen(pool.settings) as bodies:
        pool.cancel(bad.id)
        pool.cancel(other.id)
        heard = [next(bodies)["settled"][0]["id"] for _ in range(2)]
    assert heard == [bad.id, other.id]
    assert pool.database.read(inspecting.oldest_unpublished) is None


def test_a_state_that_there_is_not_stops_no_other(pool: Pool, worker: Worker) -> None:
    bad, other = register(pool, "a"), register(pool, "b")
    pool.cancel(bad)
    pool.cancel(other)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET state = 'bogus' WHERE id = :id"), {"id": bad})
        connection.execute(insert(outbox), [{"created_at": 1, "instance_ids": f"[{bad},{other}]"}])
    with listen(pool.settings) as bodies:
        assert rescue(worker, Place()).published == 1
        assert [each["id"] for each in next(bodies)["settled"]] == [other]
