"""Large XCom values with many waiters: stored, carried and published once, in statements of bounded size."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, func, select, text

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact
from sensorpool.settle.flush import BYTES, in_flushes
from sensorpool.store import inspecting, results, values
from sensorpool.store.migrate import upgrade
from sensorpool.store.schema import sensor_instance, shared_value
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.rescue import rescue

SCRIPTED = "harness.scripted.ScriptedSensor"
WAITERS = 1_100
LARGE = json.dumps("x" * 250_000)


@pytest.fixture(params=["sqlite", "postgres"])
def pool(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Pool]:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
    else:
        upgrade(url)
    made = Pool(Settings.load(database_url=url, sensors_enabled=SCRIPTED, retention=1))
    yield made
    made.close()


@pytest.fixture
def worker(pool: Pool, make_worker: Callable[[Settings], Worker]) -> Worker:
    return make_worker(pool.settings)


def register(pool: Pool, *names: str) -> list[Any]:
    context = {"folder": "/nowhere"}
    return pool.register_many([{"sensor": SCRIPTED, "poke_context": context | {"name": name}} for name in names])


def landed(worker: Worker, instance: Any, version: int, value: str) -> Fact:
    began = worker.database.read(worker.database.now) + 1
    return Fact(instance.group_id, version, began, Outcome.LANDED, None, value)


def test_a_large_value_of_many_is_kept_once(pool: Pool, worker: Worker) -> None:
    ones = register(pool, *["x"] * WAITERS)
    carried: list[int] = []

    @event.listens_for(worker.database.engine, "before_cursor_execute")
    def weigh(_: Any, __: Any, ___: Any, parameters: Any, *____: Any) -> None:
        carried.append(sum(len(v) for v in _texts(parameters)))

    tracemalloc.start()
    assert worker.settler.settle([landed(worker, ones[0], WAITERS, LARGE)]) == WAITERS
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30 * 2**20
    assert sum(carried) < 3 * len(LARGE)
    until("the results", lambda: pool.database.read(inspecting.oldest_unpublished) is None)
    inline = select(func.count()).where(sensor_instance.c.xcom_value.is_not(None))
    assert pool.database.read(lambda c: c.execute(inline).scalar_one()) == 0
    assert pool.database.read(lambda c: c.execute(select(func.count()).select_from(shared_value)).scalar_one()) == 1
    found = pool.database.read(results.read, [one.id for one in ones])
    assert {each.state for each in found} == {State.SUCCESS}
    assert {each.xcom_value for each in found} == {LARGE}
    assert len({id(each.xcom_value) for each in found}) == 1
    assert instances.show(pool, ones[-1].id)["xcom_value"] == json.loads(LARGE)


def test_a_value_that_is_kept_once_goes_with_the_last_who_has_it(pool: Pool, worker: Worker) -> None:
    ones = register(pool, *["x"] * 20)
    worker.settler.settle([landed(worker, ones[0], 20, LARGE)])
    until("the results", lambda: pool.database.read(inspecting.oldest_unpublished) is None)
    there = select(func.count()).select_from(shared_value)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET settled_at = 1 WHERE id <> :id"), {"id": ones[0].id})
        connection.execute(text("UPDATE shared_value SET created_at = 1"))
    assert rescue(worker, Place()).pruned == 19
    rescue(worker, Place())
    assert instances.show(pool, ones[0].id)["xcom_value"] == json.loads(LARGE)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET settled_at = 1"))
    assert rescue(worker, Place()).pruned == 1
    rescue(worker, Place())
    assert pool.database.read(lambda c: c.execute(there).scalar_one()) == 0


def test_small_values_stay_in_their_rows(pool: Pool, worker: Worker) -> None:
    ones = register(pool, "x", "x", "y")
    worker.settler.settle([landed(worker, ones[0], 2, LARGE), landed(worker, ones[2], 1, '"small"')])
    rows = [pool.database.read(inspecting.instance, one.id) for one in ones]
    assert [row["xcom_value"] for row in rows] == [LARGE, LARGE, '"small"']
    assert {row["shared_value_id"] for row in rows} == {None}


def test_many_large_values_settle_in_statements_of_bounded_size(pool: Pool, worker: Worker) -> None:
    ones = register(pool, *[f"n{number}" for number in range(150)])
    text = json.dumps("x" * 200_000)
    facts = [landed(worker, one, 1, text) for one in ones]
    assert len(list(in_flushes(facts))) == 2
    heaviest: list[int] = [0]

    @event.listens_for(worker.database.engine, "before_cursor_execute")
    def weigh(_: Any, __: Any, ___: Any, parameters: Any, *____: Any) -> None:
        heaviest[0] = max(heaviest[0], sum(len(v) for v in _texts(parameters)))

    assert worker.settler.settle(facts) == 150
    assert heaviest[0] < 2 * values.STATEMENT
    parts = pool.database.read(values.in_readable_parts, [one.id for one in ones])
    assert len(parts) == 2
    assert [i for part in parts for i in part] == [one.id for one in ones]


def test_reasons_of_many_settle_in_statements_of_bounded_size(pool: Pool, worker: Worker) -> None:
    ones = register(pool, *["x"] * 3_000)
    began = worker.database.read(worker.database.now) + 1
    heaviest: list[int] = [0]

    @event.listens_for(worker.database.engine, "before_cursor_execute")
    def weigh(_: Any, __: Any, ___: Any, parameters: Any, *____: Any) -> None:
        heaviest[0] = max(heaviest[0], sum(len(v) for v in _texts(parameters)))

    assert worker.settler.settle([Fact(ones[0].group_id, 3_000, began, Outcome.FAIL, "r" * 2_000)]) == 3_000
    assert heaviest[0] < 1.5 * values.STATEMENT


def test_flushes_are_weighed() -> None:
    facts = [Fact(number, 1, 0, Outcome.LANDED, None, LARGE) for number in range(200)]
    flushes = list(in_flushes(facts))
    assert [fact for some in flushes for fact in some] == facts
    assert all(sum(len(fact.xcom_value or "") for fact in some) <= BYTES for some in flushes)
    assert [len(some) for some in in_flushes([Fact(1, 1, 0, Outcome.FAIL)] * 2_500)] == [1_000, 1_000, 500]
    assert list(in_flushes([])) == []


def _texts(parameters: Any) -> Iterator[str]:
    for each in parameters if isinstance(parameters, list) else [parameters]:
        yield from (v for v in (each.values() if isinstance(each, dict) else each) if isinstance(v, str))
