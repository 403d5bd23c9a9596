"""After an outage of the broker: how soon the waiting results are sent, and what that costs new ones."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, update

from sensorpool import Pool, Settings
from sensorpool.errors import Refused, Unreachable
from sensorpool.model.states import State
from sensorpool.model.values import Settled
from sensorpool.store.schema import outbox, sensor_instance
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.rescue import CHORES, rescue

SCRIPTED = "harness.scripted.ScriptedSensor"
FLUSHES = 600


class Told:
    """Takes the place of the broker."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.refused: set[int] = set()
        self.away: set[int] = set()
        self.tries = 0

    def publish(self, settled: list[Settled]) -> None:
        """Take results, unless one of them is to be refused."""
        self.tries += 1
        ids = {each.id for each in settled}
        if ids & self.refused:
            raise Refused("not this one")
        if ids & self.away:
            raise Unreachable("the broker does not answer")
        self.ids += [each.id for each in settled]


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(sensors_enabled=SCRIPTED, rescue_interval=30)


@pytest.fixture
def worker(pool: Pool, make_worker: Callable[[Settings], Worker]) -> Worker:
    return make_worker(pool.settings)


@pytest.fixture
def told(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Told:
    made = Told()
    monkeypatch.setattr(worker.publisher, "publish", made.publish)
    return made


def settled_in_an_outage(pool: Pool, count: int) -> list[int]:
    context: dict[str, Any] = {"folder": "/nowhere"}
    named = [{"sensor": SCRIPTED, "poke_context": context | {"name": f"n{n}"}} for n in range(count)]
    ids = [one.id for one in pool.register_many(named, try_out=False)]
    with pool.database.engine.begin() as connection:
        connection.execute(update(sensor_instance).values(state=State.SUCCESS, ending="landed", settled_at=1))
        rows = [{"created_at": 1, "instance_ids": f"[{one}]", "format": 2} for one in ids]
        connection.execute(delete(outbox))
        connection.execute(insert(outbox), rows)
    return ids


def left(pool: Pool) -> int:
    return int(pool.database.read(lambda c: c.execute(select(func.count()).select_from(outbox)).scalar_one()))


def test_a_backlog_is_sent_in_one_round_the_oldest_first(pool: Pool, worker: Worker, told: Told) -> None:
    """With two hundred a round, an hour's outage took another hour."""
    ids = settled_in_an_outage(pool, FLUSHES)
    began = time.monotonic()
    assert rescue(worker, Place()).published == FLUSHES
    rate = FLUSHES / (time.monotonic() - began)
    assert told.ids == ids
    assert left(pool) == 0
    assert rate > 40, "an hour's flushes, one a tick and range, in a few minutes"


def test_a_backlog_takes_half_a_round_at_most_and_the_other_chores_come_first(
    pool: Pool, worker: Worker, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled_in_an_outage(pool, 20)
    monkeypatch.setattr(
        worker, "settings", worker.settings.model_copy(update={"rescue_interval": 0.02, "retention": 1})
    )
    publish = told.publish

    def slowly(settled: list[Settled]) -> None:
        time.sleep(0.02)
        publish(settled)

    monkeypatch.setattr(worker.publisher, "publish", slowly)
    assert rescue(worker, Place()).published == 1
    assert list(CHORES)[-1] == "publishing what a dead process left"
    assert left(pool) == 19


def test_a_message_that_is_refused_stops_none_behind_it(pool: Pool, worker: Worker, told: Told) -> None:
    ids = settled_in_an_outage(pool, 200)
    told.refused, told.away = set(ids[60:70]), {ids[100]}
    assert rescue(worker, Place()).published == 189
    assert sorted(told.ids) == [one for one in ids if one not in told.refused | told.away]
    tries = told.tries
    assert rescue(worker, Place()).published == 0
    assert told.tries == tries, "each waits before it is tried again"
    with pool.database.engine.begin() as connection:
        connection.execute(update(outbox).values(next_try_at=1))
    told.refused, told.away = set(), set()
    assert rescue(worker, Place()).published == 11
    assert sorted(told.ids) == ids


def test_a_broker_that_is_away_is_tried_twice_a_round(pool: Pool, worker: Worker, told: Told) -> None:
    """Each attempt may take its whole time limit."""
    ids = settled_in_an_outage(pool, 100)
    told.away = set(ids)
    assert rescue(worker, Place()).published == 0
    assert told.tries == 2
    told.away = set()
    assert rescue(worker, Place()).published == 98, "two wait for their next turn"


def test_a_clock_that_was_put_back_keeps_nothing_waiting(pool: Pool, worker: Worker, told: Told) -> None:
    settled_in_an_outage(pool, 3)
    now = pool.database.read(pool.database.now)
    with pool.database.engine.begin() as connection:
        connection.execute(update(outbox).values(next_try_at=now + 3_600_000, created_at=now + 3_600_000))
    assert rescue(worker, Place()).published == 3
