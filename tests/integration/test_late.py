"""Events that come later than the load looks back: a slow commit, and a failure that is seen at long intervals."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.client import register
from sensorpool.errors import InfraFailure
from sensorpool.leases.lease import Acquired
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.states import State
from sensorpool.worker.context import Worker
from tests.integration.test_jobs import OURS as THEIRS
from tests.integration.test_jobs import Lands, Waits
from tests.support.moved_clock import Clock

HOUR = 3_600_000  # milliseconds


class Refuses(Lands):
    """Cannot ask."""

    def poke(self, context: Any) -> Any:
        raise InfraFailure("refused, as told")


OURS = [*THEIRS, f"{__name__}.Refuses"]
LONG = {"shards": 1, "tick": 5.0, "poke_interval": 3_600.0, "timeout": 7 * 86_400.0, "sensors_enabled": OURS}


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000_000)


@pytest.fixture
def pool(make_pool: Callable[..., Pool], clock: Clock) -> Pool:
    made = make_pool(**LONG)
    made.database._clock = clock
    return made


@pytest.fixture
def worker(pool: Pool, clock: Clock, make_worker: Callable[[Settings], Worker]) -> Worker:
    made = make_worker(pool.settings)
    made.database._clock = clock
    return made


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    return worker.run_job(pool.ranges[0], "us").as_dict()


def register_late(pool: Pool, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> int:
    """Register, with a commit a minute after the statement; a load in between cannot see it."""
    monotonic = [0.0]

    def reached(step: str) -> None:
        if step == "register.before_commit":
            clock.ms += 60_000
            monotonic[0] += 60.0
            held = acquire(worker, pool)
            held.state.last = clock.ms  # as that load leaves it
            assert not held.lease.finish(held.state)

    with monkeypatch.context() as patched:
        patched.setattr(register, "failpoint", reached)
        patched.setattr(register, "time", SimpleNamespace(monotonic=lambda: monotonic[0]))
        return pool.register(f"{Lands.__module__}.Lands", {"name": "late"}).id


def acquire(worker: Worker, pool: Pool) -> Acquired:
    held = worker.leases.acquire(pool.ranges[0], "another")
    assert isinstance(held, Acquired)
    return held


def test_a_commit_that_comes_late_is_poked_at_once(
    pool: Pool, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = register_late(pool, worker, clock, monkeypatch)
    clock.ms += 1_000
    assert job(worker, pool)["poked"] == 1
    assert pool.wait([late], 0) == {late: State.SUCCESS}


def test_a_commit_that_comes_late_in_the_middle_of_a_job_is_poked_by_its_next_round(
    pool: Pool, worker: Worker, clock: Clock
) -> None:
    held = acquire(worker, pool)
    held.state.last = clock.ms
    worker.leases.waking.raise_flags({pool.ranges[0]: [7, 8]})
    again = held.lease.finish(held.state, again=True)
    assert again is not None
    assert sorted(again) == [7, 8]
    assert not held.lease.finish(held.state, again=True)


def test_a_group_that_is_asked_for_is_poked_at_once_whenever_it_was_poked_last(
    pool: Pool, worker: Worker, clock: Clock
) -> None:
    instance = pool.register(f"{Waits.__module__}.Waits", {"name": "x"})
    for _ in range(2):
        clock.ms += 1_000
        worker.leases.waking.raise_flags({pool.ranges[0]: [instance.group_id, 10**12]})
        assert job(worker, pool)["poked"] == 1
    clock.ms += 1_000
    assert job(worker, pool)["poked"] == 0, "once"


def test_a_flag_is_raised_once(pool: Pool, worker: Worker) -> None:
    worker.leases.store.client.set(key(pool.ranges[0], "dirty"), "nonsense")
    held = acquire(worker, pool)
    assert held.dirty
    held.lease.release()
    assert worker.leases.waking.raise_flags({pool.ranges[0]: []}) == [pool.ranges[0]]
    for late in ([5], [6], []):
        assert not worker.leases.waking.raise_flags({pool.ranges[0]: late})
    assert worker.leases.store.client.pttl(key(pool.ranges[0], "dirty")) > 0
    assert sorted(acquire(worker, pool).woken) == [5, 6]


def test_the_window_ends_though_the_interval_is_longer(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], clock: Clock
) -> None:
    """Jobs between two pokes of a group remember since when it fails."""
    pool = make_pool(**LONG, infra_failure_window=600.0)
    worker = make_worker(pool.settings)
    pool.database._clock = worker.database._clock = clock
    failing = pool.register(f"{__name__}.Refuses", {"name": "x"}).id
    clock.ms += 1_000
    assert job(worker, pool)["poked"] == 1
    ends = clock.ms + HOUR + 10_000
    while clock.ms < ends:
        clock.ms += 40_000
        job(worker, pool)
    assert pool.wait([failing], 0) == {failing: State.FAILED}
    assert "for longer than 600 s" in instances.show(pool, failing)["reason"]
