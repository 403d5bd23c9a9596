"""Failures of the infrastructure that outlive their job: one window for a group, whichever process pokes it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.errors import InfraFailure, Unreachable
from sensorpool.leases.lease import Lease
from sensorpool.model.states import State
from sensorpool.worker.context import Worker
from tests.support.builders import START
from tests.support.moved_clock import Clock
from tests.support.troubled import trouble_of

MINUTE = 60_000


class Refuses:
    """Waits for longer than its job does, and fails; or it finds nothing, or is quick, as it is told."""

    script: ClassVar[list[str]] = []

    def poke(self, context: Any) -> bool:
        """Poke."""
        said = self.script.pop(0) if self.script else "slow"
        if said.startswith("slow"):
            time.sleep(0.3)
        if said.endswith("nothing"):
            return False
        raise InfraFailure("connect timed out")


class Fleet:
    """Processes of one pool, which poke in turn, once a minute of a clock that the test moves."""

    def __init__(self, pool: Pool, workers: list[Worker]) -> None:
        self.pool, self.workers = pool, workers
        self.clock = Clock(START)
        for database in (pool.database, *(worker.database for worker in workers)):
            database._clock = self.clock
        self.minutes = 0
        self.waits = pool.register(Refuses, {}, poke_interval=60, timeout=86_400)

    def poke(self) -> State:
        """Poke once by the next process; return the state of the sensor."""
        self.clock.ms += MINUTE
        worker = self.workers[self.minutes % len(self.workers)]
        self.minutes += 1
        worker.run_job(self.pool.ranges[0], f"job{self.minutes}")
        until("the slow poke to end", lambda: not worker.background.is_busy)
        return self.pool.get(self.waits.id).state

    def is_failing(self) -> bool:
        return trouble_of(self.pool.database, self.waits.group_id).failing_since is not None


@pytest.fixture(params=[2, 3, 4], ids=lambda number: f"{number} processes")
def fleet(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], request: pytest.FixtureRequest
) -> Fleet:
    settings = {
        "infra_failure_window": 290.0,  # of five minutes: a slow poke began before the clock moved on
        "lease_ttl": 90.0,  # a minute without a job is no outage
    }
    pool = make_pool(sensors_enabled=f"{__name__}.Refuses", shards=1, tick=0.2, **settings)
    Refuses.script.clear()
    return Fleet(pool, [make_worker(pool.settings) for _ in range(request.param)])


def test_the_window_ends_though_each_poke_is_another_process(fleet: Fleet) -> None:
    states = [fleet.poke() for _ in range(6)]
    assert states == [State.SENSING] * 5 + [State.FAILED]
    assert "for longer than 290 s" in str(fleet.pool.get(fleet.waits.id).reason)


@pytest.mark.parametrize("found", ["nothing", "slow nothing"])
def test_a_poke_that_finds_nothing_ends_the_window_in_all_processes(found: str, fleet: Fleet) -> None:
    """It is one of a job, or outlives its job."""
    Refuses.script[:] = ["slow"] * 4 + [found]
    assert [fleet.poke() for _ in range(4)] == [State.SENSING] * 4
    assert fleet.is_failing()
    fleet.poke()
    assert not fleet.is_failing()
    assert [fleet.poke() for _ in range(6)] == [State.SENSING] * 5 + [State.FAILED]


def test_quick_and_slow_failures_are_one_window(fleet: Fleet) -> None:
    Refuses.script[:] = ["quick", "slow", "quick", "slow", "slow", "quick"]
    assert [fleet.poke() for _ in range(6)] == [State.SENSING] * 5 + [State.FAILED]


def test_an_answer_ends_the_window_though_the_job_that_handed_the_poke_over_left_no_state(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    def away(*_: Any, **__: Any) -> Any:
        left.append(1)
        raise Unreachable("Redis does not answer")

    Refuses.script[:] = ["quick"] * 4 + ["slow nothing"] + ["quick"] * 6
    assert [fleet.poke() for _ in range(4)] == [State.SENSING] * 4
    with monkeypatch.context() as patched:
        patched.setattr(Lease, "finish", away)
        with suppress(Unreachable):
            fleet.poke()
        until("the slow poke to end", lambda: not any(worker.background.is_busy for worker in fleet.workers))
    assert left
    assert [fleet.poke() for _ in range(6)] == [State.SENSING] * 5 + [State.FAILED]
