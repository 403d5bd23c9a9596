"""A load or a flush that takes longer than a lease lives: the holder keeps the lease, and no other job pokes."""

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.states import State
from sensorpool.model.values import JobResult
from sensorpool.worker import job as cycle
from sensorpool.worker.context import Worker

LEASE = 1.0  # seconds: ten heartbeats, so that a busy machine keeps it too


class Lands:
    """Lands, and counts."""

    poked: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> Any:
        Lands.poked.append(self.name)
        return True


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    Lands.poked.clear()
    path = f"{__name__}.Lands"
    return make_pool(sensors_enabled=path, shards=1, tick=0.1, poke_interval=60, lease_ttl=LEASE, heartbeat=0.1)


@pytest.fixture
def worker(pool: Pool, make_worker: Callable[[Settings], Worker]) -> Worker:
    return make_worker(pool.settings)


def register(pool: Pool) -> list[int]:
    made = pool.register_many({"sensor": f"{__name__}.Lands", "poke_context": {"name": f"n{n}"}} for n in range(5))
    return [instance.id for instance in made]


@pytest.mark.parametrize("where", ["load", "settle"])
def test_a_holder_keeps_its_lease_though_the_database_is_slow(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    is_slow = threading.Event()
    place = cycle.load if where == "load" else worker.settler
    real = getattr(place, where)

    def slowly(*arguments: Any) -> Any:
        is_slow.set()
        time.sleep(3 * LEASE)
        return real(*arguments)

    monkeypatch.setattr(place, where, slowly)
    ids, done = register(pool), JobResult()

    def job() -> None:
        nonlocal done
        done = worker.run_job(pool.ranges[0], "ours")

    thread = threading.Thread(target=job)
    thread.start()
    assert is_slow.wait(30)
    while thread.is_alive():  # the ticks of others go on meanwhile
        held = worker.leases.acquire(pool.ranges[0], "another")
        assert held == "ours" or not is_slow.is_set() or pool.wait(ids, 0)[ids[-1]] is not State.SENSING
        if held != "ours":
            held.lease.release()  # type: ignore[union-attr]
        time.sleep(0.02)
    assert set(pool.wait(ids, 0).values()) == {State.SUCCESS}
    assert len(Lands.poked) == 5
    assert (done.settled, done.extra) == (5, {})


def test_a_lease_is_not_kept_for_ever(
    pool: Pool, make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that is never answered holds its range no longer than the limit of a job."""
    worker = make_worker(pool.settings.model_copy(update={"job_time_limit": 3 * LEASE}))
    held = worker.leases.acquire(pool.ranges[0], "ours")
    began = time.monotonic()
    with worker.keeper.keeping(held.lease):  # type: ignore[union-attr]
        until("its end", lambda: worker.leases.acquire(pool.ranges[0], "another") != "ours", every=0.02)
    assert time.monotonic() - began > 2 * LEASE
    assert not held.lease.is_ours()  # type: ignore[union-attr]


def test_nothing_goes_on_after_the_worker(pool: Pool, worker: Worker) -> None:
    held = worker.leases.acquire(pool.ranges[0], "ours")
    with worker.keeper.keeping(held.lease):  # type: ignore[union-attr]
        worker.close()
    until("the thread's end", lambda: not worker.keeper.is_alive)
