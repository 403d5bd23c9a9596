"""A poke that turns slow never lands: waiters that can poke by themselves are handed back, `show` tells the others."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.until import until
from sensorpool import Pool
from sensorpool.admin.instances import show
from sensorpool.admin.status import status
from sensorpool.config.settings import Settings
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Registration
from sensorpool.worker.context import Worker

TICK = 0.2


class Slow:
    """Takes as long as a file says, in every process, and then holds."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def poke(self, context: Any) -> bool:
        seconds = float(self.path.read_text())
        time.sleep(seconds)
        return seconds > 0


@pytest.fixture
def pace(tmp_path: Path) -> Path:
    path = tmp_path / "seconds"
    path.write_text("0")
    return path


@pytest.fixture
def run(make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker]) -> Callable[..., Any]:
    def make(**settings: Any) -> tuple[Pool, Worker]:
        pool = make_pool(
            sensors_enabled=[f"{__name__}.Slow"],
            shards=1,
            tick=TICK,
            poke_interval=TICK,
            poke_timeout=0.5,
            **settings,
        )
        return pool, make_worker(pool.settings)

    return make


def register(pool: Pool, pace: Path, **more: Any) -> int:
    registration = Registration(sensor=f"{__name__}.Slow", poke_context={"path": str(pace)}, **more)
    return pool.register_many([registration])[0].id


def jobs_until(pool: Pool, worker: Worker, what: str, holds: Callable[[], Any]) -> Any:
    return until(what, lambda: worker.run_job(pool.ranges[0], "us") and holds(), every=TICK)


def test_after_some_overruns_in_a_row_a_task_is_handed_back_and_others_wait_on(
    run: Callable[..., Any], pace: Path
) -> None:
    pool, worker = run(overrun_limit=2)
    task, plain = register(pool, pace, external_id="a try"), register(pool, pace, timeout=600)
    jobs_until(pool, worker, "a first poke", lambda: show(pool, plain)["last_outcome"] == "not_landed")
    pace.write_text("5")
    jobs_until(pool, worker, "the hand-back", lambda: show(pool, task)["state"] != State.SENSING)
    ended = show(pool, task)
    assert (ended["state"], ended["ending"]) == (State.CANCELLED, Ending.HANDED_BACK)
    assert ended["reason"] == (
        "the poke took longer than its limit of 0.5 s, 2 times in a row; SENSORPOOL_POKE_TIMEOUT gives it more"
    )
    waits = show(pool, plain)
    assert waits["state"] == State.SENSING
    assert "2 pokes in a row overran SENSORPOOL_POKE_TIMEOUT" in waits["next_poke_because"]
    assert status(pool)["overrunning"] == 1
    pace.write_text("0.1")
    jobs_until(pool, worker, "the other one to land", lambda: show(pool, plain)["state"] == State.SUCCESS)
    until("nothing of it to stay", lambda: status(pool)["overrunning"] == 0)


@pytest.mark.parametrize(("limit", "ending"), [(3, Ending.HANDED_BACK), (0, Ending.TIMEOUT)])
def test_at_its_timeout_a_task_whose_last_poke_overran_is_handed_back(
    run: Callable[..., Any], pace: Path, limit: int, ending: Ending
) -> None:
    pool, worker = run(overrun_limit=limit)
    pace.write_text("5")
    task, plain = register(pool, pace, timeout=0.2, external_id="a try"), register(pool, pace, timeout=0.2)
    jobs_until(pool, worker, "both to end", lambda: status(pool)["sensing"] == 0)
    assert (show(pool, task)["ending"], show(pool, plain)["ending"]) == (ending, Ending.TIMEOUT)
    assert "the poke took longer than its limit of 0.5 s" in show(pool, plain)["reason"]
