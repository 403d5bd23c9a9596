"""No window counts the time of an outage: on an SQLite file, with a clock that the test moves."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from sensorpool.worker.suspects import Suspects
from sqlalchemy import text

from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.errors import InfraFailure
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Report
from sensorpool.poke.child import Suspect
from sensorpool.testing import Clock
from sensorpool.worker import job as cycle
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.context import Worker
from tests.integration.test_unsettled import refusing

TICK, INTERVAL, WINDOW, OUTAGE = 5.0, 60.0, 600.0, 3 * 3_600.0  # seconds


class Waits:
    """Waits until it is told to land."""

    lands = False

    def __init__(self, name: str) -> None:
        pass

    def poke(self, context: Any) -> bool:
        return self.lands


class Refuses(Waits):
    """Cannot ask."""

    def poke(self, context: Any) -> bool:
        raise InfraFailure("refused, as told")


class AtOnce:
    """Takes the place of the isolated lane: suspects are reported at once."""

    def __init__(self, suspects: Suspects) -> None:
        self._suspects = suspects

    def offer(self, suspects: list[Suspect]) -> None:
        self._suspects._take([Report(each.group, time.monotonic(), Outcome.NOT_LANDED) for each in suspects])

    def has(self, group_id: int) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def close(self) -> list[int]:
        return []


class Place:
    """A pool, a worker that can poke, a worker with an old allowlist, and their clock."""

    def __init__(self, pool: Pool, make_worker: Callable[[Settings], Worker]) -> None:
        self.clock = Clock()
        self.pool = pool
        self.good = make_worker(pool.settings)
        self.bad = make_worker(pool.settings.model_copy(update={"sensors_enabled": ("other.Class",)}))
        for database in (pool.database, self.good.database, self.bad.database):
            database._clock = self.clock

    def register(self, cls: type, **more: Any) -> int:
        of = {"dag_id": "d", "task_id": "bad", "run_id": "r"}
        return self.pool.register(f"{__name__}.{cls.__name__}", {"name": "x"}, **of, **more).id

    def job(self, worker: Worker, after: float = TICK) -> dict[str, Any]:
        """Run the job of the one range after some seconds."""
        self.clock.advance(after)
        return cycle.run(worker, self.pool.ranges[0], "one@here/1").as_dict()

    def work(self, worker: Worker, seconds: float, instance_id: int) -> float:
        """Run a job a tick until an instance ends, and return after how many seconds it did."""
        began = self.clock.now
        while self.state(instance_id) is State.SENSING and self.clock.now - began < seconds * 1000:
            self.job(worker)
        return (self.clock.now - began) / 1000

    def state(self, instance_id: int) -> State:
        return State(self.pool.wait([instance_id], 0)[instance_id])

    def left(self) -> RangeState:
        """Return the state that the last job left."""
        [(_, state)] = self.pool.leases.look(self.pool.ranges)
        return state


@pytest.fixture
def place(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch
) -> Place:
    monkeypatch.setattr(ClockWatch, "trusts", lambda *_: True)  # as a process that has just started does
    monkeypatch.setattr(Waits, "lands", False)
    ours = [f"{__name__}.{cls.__name__}" for cls in (Waits, Refuses)]
    return Place(
        make_pool(
            sensors_enabled=ours, shards=1, tick=TICK, poke_interval=INTERVAL, infra_failure_window=WINDOW, timeout=1e6
        ),
        make_worker,
    )


@pytest.mark.parametrize("timeout", [1e6, 1_800.0], ids=["the window", "the deadline"])
@pytest.mark.parametrize("before", [1, 100], ids=["at once", "for long"])
def test_after_an_outage_what_one_process_cannot_poke_is_left_to_others_first(
    place: Place, monkeypatch: pytest.MonkeyPatch, timeout: float, before: int
) -> None:
    """Before the outage no process could poke the group; after it, the worker that still cannot has the first jobs."""
    ours = place.register(Waits, timeout=timeout)
    for _ in range(before):
        place.job(place.bad)
    place.job(place.bad, OUTAGE)
    for _ in range(10):
        place.job(place.bad)
    assert place.left().stranded
    assert place.state(ours) is State.SENSING
    monkeypatch.setattr(Waits, "lands", True)
    place.job(place.good)
    assert place.state(ours) is State.SUCCESS


def test_outages_or_not_what_no_process_can_poke_ends_after_the_window(place: Place) -> None:
    ours = place.register(Waits)
    assert place.work(place.bad, WINDOW / 2, ours) == WINDOW / 2
    place.job(place.bad, OUTAGE)
    assert WINDOW / 2 - 100 <= place.work(place.bad, 2 * WINDOW, ours) <= WINDOW / 2 + 100
    assert "no process could poke it for 600 s" in instances.show(place.pool, ours)["reason"]


def test_a_deadline_in_an_outage_ends_once_others_have_had_their_turn_after_it(place: Place) -> None:
    ours = place.register(Waits, timeout=1_800.0)
    place.job(place.bad)
    place.job(place.bad, OUTAGE)
    assert 2 * INTERVAL - 2 * TICK <= place.work(place.bad, WINDOW, ours) <= 3 * INTERVAL
    assert instances.show(place.pool, ours)["ending"] == "timeout"


def test_an_infrastructure_failure_does_not_last_through_an_outage(place: Place) -> None:
    ours = place.register(Refuses)
    place.work(place.good, WINDOW / 2, ours)
    place.job(place.good, OUTAGE)
    assert place.state(ours) is State.SENSING
    assert WINDOW / 2 - 100 <= place.work(place.good, 2 * WINDOW, ours) <= WINDOW / 2 + 100
    assert "for longer than 600 s" in instances.show(place.pool, ours)["reason"]


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "and Redis forgot the last job"])
def test_a_result_that_cannot_be_written_does_not_last_through_an_outage(
    place: Place, make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    ours = place.register(Waits)
    monkeypatch.setattr(Waits, "lands", True)
    with refusing(place.pool):
        place.work(place.good, WINDOW / 2, ours)
        if forgotten:
            place.pool.leases.store.client.delete(key(place.pool.ranges[0], "state"))
            place.good.last_loads._last.clear()
        place.job(place.good, OUTAGE)
        assert place.state(ours) is State.SENSING
        [kept] = place.pool.leases.unsettled.of(place.pool.ranges).values()
        assert kept.since > place.clock.now - WINDOW * 1000, "pokes outside of jobs hold it against the same window"
        assert place.work(place.good, 2 * WINDOW, ours) >= (WINDOW if forgotten else WINDOW / 2) - 100
        assert place.state(ours) is State.FAILED


def test_what_is_poked_apart_is_not_left_to_others_any_more(place: Place) -> None:
    """A group that once took its process down is always poked apart, once an interval."""
    ours = place.register(Waits)
    place.pool.database.run(lambda c: c.execute(text("UPDATE poke_group SET crashes = 1, version = version + 1")))
    place.job(place.bad)
    assert place.left().stranded
    range_ = place.pool.ranges[0]
    place.pool.leases.store.client.set(key(range_, "poked"), "of another type")
    place.good.suspects._crashing = AtOnce(place.good.suspects)  # type: ignore[assignment]
    turns = 0
    for _ in range(140):  # ticks
        turns += place.job(place.good)["groups"]
    assert 10 <= turns <= 15, "an interval has twelve ticks"
    assert not place.left().stranded
    place.job(place.bad, INTERVAL)
    assert place.state(ours) is State.SENSING
    assert place.left().stranded


def test_only_a_poke_that_came_after_it_was_left_to_others_counts(place: Place) -> None:
    place.register(Waits)
    place.job(place.bad)
    [group_id] = place.left().stranded
    leases, range_ = place.pool.leases, place.pool.ranges[0]
    leases.poked_apart.keep(range_, {group_id: place.clock.now - OUTAGE * 1000, 10**6: place.clock.now})
    place.job(place.bad)
    assert place.left().stranded, "it was poked before that"
    leases.poked_apart.keep(range_, {group_id: place.clock.now})
    place.job(place.bad, 0.1)
    assert not place.left().stranded
    assert leases.poked_apart.take(range_) == {}
