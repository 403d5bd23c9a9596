"""When a job ends, and that it makes progress: on an SQLite file, in this process."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery.worker import state as worker_state

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.states import State
from sensorpool.service.standalone import Standalone
from sensorpool.store import inspecting
from sensorpool.worker import job as cycle
from sensorpool.worker.context import Worker
from tests.support.troubled import trouble_of

TICK = 0.2


class Lands:
    """Lands."""

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> Any:
        return True


class Waits(Lands):
    """Does not land."""

    def poke(self, context: Any) -> Any:
        return False


class AsyncGrumbles(Lands):
    """Raises another error when it is cancelled."""

    async def poke(self, context: Any) -> Any:
        try:
            await asyncio.sleep(3_600)
        except BaseException as error:
            raise RuntimeError("the request failed") from error


OURS = [f"{__name__}.{cls.__name__}" for cls in (Lands, Waits, AsyncGrumbles)]
QUICK = {"shards": 1, "tick": TICK, "poke_interval": TICK, "poke_timeout": 0.5}


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(sensors_enabled=OURS, **QUICK)


def register(pool: Pool, cls: type, name: str = "x", **more: Any) -> int:
    return pool.register(f"{__name__}.{cls.__name__}", {"name": name}, **more).id


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    """Run the job of the one range, as soon as a period of each group has begun."""
    time.sleep(TICK)
    return worker.run_job(pool.ranges[0], "us").as_dict()


def test_a_job_ends_though_somebody_registers_all_the_time(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ranges need the process too; new groups have their turn in the next job."""
    rounds = 0

    def reached(step: str) -> None:
        nonlocal rounds
        if step == "finish.before":
            rounds += 1
            assert rounds < 1_000, "the job has no end"
            assert pool.leases.waking.raise_flags({pool.ranges[0]: []})
            time.sleep(0.01)

    monkeypatch.setattr(cycle, "failpoint", reached)
    register(pool, Waits)
    job(worker, pool)
    assert rounds > 1, "it goes on for a while"
    assert pool.leases.acquire(pool.ranges[0], "another holder").dirty  # type: ignore[union-attr]


def test_somebody_is_poked_however_long_the_load_takes(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cycle.load.load

    def load(*arguments: Any) -> Any:
        time.sleep(2 * TICK)
        return real(*arguments)

    monkeypatch.setattr(cycle.load, "load", load)
    landing = register(pool, Lands)
    job(worker, pool)
    assert pool.wait([landing], 0) == {landing: State.SUCCESS}


@pytest.mark.parametrize("raises", ["SystemExit('set this first')", "asyncio.CancelledError", "BaseException('no')"])
def test_a_module_that_ends_its_import_fails_its_sensors_with_the_reason(
    make_pool: Callable[..., Pool],
    make_worker: Callable[[Settings], Worker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raises: str,
) -> None:
    (tmp_path / "ends_its_import.py").write_text(f"import asyncio\nraise {raises}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    pool = make_pool(sensors_enabled="ends_its_import.Sensor", infra_failure_window=TICK, **QUICK)
    registered = {"sensor": "ends_its_import.Sensor", "poke_context": {"name": "x"}}
    [instance] = pool.register_many([registered], try_out=False)
    worker = make_worker(pool.settings)
    until("its end", lambda: job(worker, pool) and pool.wait([instance.id], 0)[instance.id] is State.FAILED)
    assert "cannot be imported" in pool.database.read(inspecting.instance, instance.id)["reason"]


def test_a_coroutine_that_makes_an_error_of_its_timeout_has_overrun_all_the_same(pool: Pool, worker: Worker) -> None:
    waiting = register(pool, AsyncGrumbles)
    group_id = pool.get(waiting).group_id
    until("its end", lambda: job(worker, pool) and trouble_of(pool.database, group_id).overruns)
    assert pool.wait([waiting], 0) == {waiting: State.SENSING}


def test_an_execution_timeout_of_zero_is_one(pool: Pool, worker: Worker) -> None:
    waiting = register(pool, Waits, execution_timeout=0, timeout=50, soft_fail=True)
    until("its end", lambda: job(worker, pool) and pool.wait([waiting], 0)[waiting] is not State.SENSING)
    row = pool.database.read(inspecting.instance, waiting)
    assert (row["state"], row["ending"]) == (State.FAILED, "execution_timeout")


def test_an_interval_below_a_millisecond_backs_off(pool: Pool) -> None:
    register(pool, Waits, poke_interval=0.0004, exponential_backoff=True)


def test_a_process_whose_worker_has_ended_knows(tmp_path: Path) -> None:
    """Otherwise it would stay, and poke nothing."""
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}", shards=1)
    with Standalone(settings) as standalone:
        assert not standalone.is_over
        worker_state.should_stop = 0
        until("the worker's end", lambda: standalone.is_over)
