"""A DAG run that was deleted and made again under its name: its sensors wait in the pool as those of any run."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.models.taskinstance import uuid7

from sensorpool import Pool
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.task import deferral
from sensorpool.errors import KeyConflict
from sensorpool.model.states import State
from sensorpool.model.values import Key, Registered, Registration
from tests.airflow.running import pool_of_process

SENSOR = "harness.scripted.ScriptedSensor"


@pytest.fixture(autouse=True)
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    with pool_of_process(monkeypatch, postgres_database, redis_url, SENSOR) as made:
        yield made


def register(external_id: str | None, name: str = "x", try_number: int = 1) -> Registered:
    key = Key("dag", "wait", "scheduled__2030-01-31", try_number=try_number)
    context: dict[str, Any] = {"folder": "/nowhere", "name": name}
    return deferral.register(Registration(sensor=SENSOR, poke_context=context, key=key, external_id=external_id))


@pytest.mark.parametrize("name", ["x", "another condition"])
def test_what_ended_in_an_earlier_life_is_forgotten(pool: Pool, name: str) -> None:
    before = register("1 first life")
    pool.cancel(before.id)
    again = register("2 second life", name)
    assert (again.created, again.state) == (True, State.SENSING)
    assert again.id != before.id


@pytest.mark.parametrize("external_id", ["this life", None])
def test_a_try_that_ended_in_this_life_goes_on_natively(pool: Pool, external_id: str | None) -> None:
    before = register("this life")
    pool.cancel(before.id)
    with pytest.raises(NotPoolable, match="in the pool already"):
        register(external_id)
    with pytest.raises(KeyConflict, match="waiting for something else"):
        register(external_id, "another condition")


def test_what_still_waits_is_not_forgotten(pool: Pool) -> None:
    before = register("1 first life")
    assert register("2 second life").id == before.id
    with pytest.raises(KeyConflict, match="waiting for something else"):
        register("2 second life", "another condition")
    assert pool.wait([before.id], 0) == {before.id: State.SENSING}


def test_a_higher_try_of_an_earlier_life_is_forgotten(pool: Pool) -> None:
    pool.cancel(register("1 first life").id)
    pool.cancel(register("2 first life", try_number=2).id)
    assert register("3 second life").created


def test_a_higher_try_of_this_life_is_not_forgotten(pool: Pool) -> None:
    """A process of the earlier try comes too late."""
    pool.cancel(register("2 this life", try_number=2).id)
    with pytest.raises(KeyConflict, match="comes too late"):
        register("1 this life")


def test_a_process_of_an_earlier_life_forgets_nothing_of_this_one(pool: Pool) -> None:
    before = register("2 second life")
    pool.cancel(before.id)
    with pytest.raises(NotPoolable, match="in the pool already"):
        register("1 first life")
    assert pool.get(before.id).state is State.CANCELLED


def test_ids_of_tries_are_in_the_order_of_time() -> None:
    """So an older id is of an earlier life."""
    ids = [uuid7() for _ in range(100)]
    assert {each.version for each in ids} == {7}
    assert [str(each) for each in ids] == sorted(map(str, ids))
