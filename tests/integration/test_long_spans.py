"""The longest spans that settings allow: nothing overflows, and a true condition settles now."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.scripted import land
from harness.service import Service
from sensorpool import Pool
from sensorpool.config.settings import Settings
from sensorpool.model.values import LONGEST_SPAN
from sensorpool.worker.context import Worker


def test_worker_and_beat_live_with_ten_years(make_service: Callable[..., Service], tmp_path: Path) -> None:
    names = ("rescue_interval", "job_time_limit", "retention", "child_max_age", "infra_failure_window", "lease_ttl")
    more = ("tick", "poke_interval", "timeout", "commit_overlap")
    service = make_service(
        **dict.fromkeys((*names, *more), LONGEST_SPAN), heartbeat=LONGEST_SPAN / 3, poke_timeout=LONGEST_SPAN / 2
    )
    land(tmp_path, "x")
    context = {"folder": str(tmp_path), "name": "x"}
    service.start()
    made = service.pool.register("harness.scripted.ScriptedSensor", context)
    assert set(service.pool.wait([made.id], 60).values()) == {"success"}
    assert [process.poll() for process in service.processes] == [None, None]
    assert not {"OverflowError", "Traceback"} & set(service.logs().replace(":", " ").split())


class TakesLong:
    """Takes a while, and less than what counts as hanging: a quarter of the time limit."""

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: object) -> bool:
        time.sleep(0.15)
        return False


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(
        sensors_enabled=[f"{__name__}.TakesLong"],
        shards=1,
        tick=60.0,
        job_time_limit=3,
        poke_timeout=1.0,
        poke_concurrency=2,
    )


def test_a_job_ends_before_its_hard_limit_however_long_the_tick(pool: Pool, worker: Worker) -> None:
    for number in range(50):
        pool.register(f"{__name__}.TakesLong", {"name": str(number)}, timeout=600)
    result = worker.run_job(pool.ranges[0], "us")
    assert result.left > 0
    assert result.seconds < 3
    assert Settings.load().job_span == 5.0
