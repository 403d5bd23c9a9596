"""No window counts the time of an outage: on an SQLite file, with a clock that the test moves."""

from collections.abc import Callable
from typing import Any

import pytest

from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.errors import InfraFailure
from sensorpool.model.states import State
from sensorpool.testing import Clock
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.context import Worker
from tests.support.troubled import put_in_trouble, trouble_of

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
        return worker.run_job(self.pool.ranges[0], "one@here/1").as_dict()

    def work(self, worker: Worker, seconds: float, instance_id: int) -> float:
        """Run a job a tick until an instance ends, and return after how many seconds it did."""
        began = self.clock.now
        while self.state(instance_id) is State.SENSING and self.clock.now - began < seconds * 1000:
            self.job(worker)
        return (self.clock.now - began) / 1000

    def state(self, instance_id: int) -> State:
        return State(self.pool.wait([instance_id], 0)[instance_id])

    def is_unpokeable(self, instance_id: int) -> bool:
        """Whether the instance's group could not be poked lately."""
        trouble = trouble_of(self.pool.database, self.pool.get(instance_id).group_id)
        return trouble.unpokeable_since is not None


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
    assert place.is_unpokeable(ours)
    assert place.state(ours) is State.SENSING
    monkeypatch.setattr(Waits, "lands", True)
    place.job(place.good)
    assert place.state(ours) is State.SUCCESS


def test_outages_or_not_what_no_process_can_poke_ends_after_the_window(place: Place) -> None:
    ours = place.register(Waits)
    assert place.work(place.bad, WINDOW / 2, ours) == WINDOW / 2
    place.job(place.bad, OUTAGE)
    assert WINDOW - 100 <= place.work(place.bad, 2 * WINDOW, ours) <= WINDOW + 100, "the window begins anew"
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


def test_a_group_that_is_struck_has_its_whole_window_too(place: Place) -> None:
    """What no process can poke in a child process, either."""
    ours = place.register(Waits)
    group_id = place.pool.get(ours).group_id
    began = place.clock.now
    put_in_trouble(place.pool.database, [group_id], strikes=1, unpokeable_since=began - 1_000 * 500)
    place.job(place.good)
    place.job(place.good, OUTAGE)
    assert trouble_of(place.pool.database, group_id).unpokeable_since in {None, place.clock.now}
    assert place.state(ours) is State.SENSING
