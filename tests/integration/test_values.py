"""Large XCom values: stored and published in statements of bounded size."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact
from sensorpool.settle.flush import BYTES, in_flushes
from sensorpool.store import inspecting, results, settling
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker

SCRIPTED = "harness.scripted.ScriptedSensor"
WAITERS = 300
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


def test_a_large_value_of_many_takes_little_memory(pool: Pool, worker: Worker) -> None:
    ones = register(pool, *["x"] * WAITERS)
    tracemalloc.start()
    assert worker.settler.settle([landed(worker, ones[0], WAITERS, LARGE)]) == WAITERS
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60 * 2**20
    until("the results", lambda: pool.database.read(inspecting.oldest_unpublished) is None)
    found = pool.database.read(results.read, [one.id for one in ones[-2:]])
    assert [(each.state, each.xcom_value) for each in found] == [(State.SUCCESS, LARGE)] * 2
    assert instances.show(pool, ones[-1].id)["xcom_value"] == json.loads(LARGE)


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
    assert heaviest[0] < 2 * settling.STATEMENT
    parts = pool.database.read(results.in_readable_parts, [one.id for one in ones])
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
    assert heaviest[0] < 1.5 * settling.STATEMENT


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
