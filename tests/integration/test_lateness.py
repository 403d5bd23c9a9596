"""Pokes that are late by intervals turn `health` red, whatever the cause, and it names the mend."""

import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, status
from sensorpool.leases.range_state import RangeState
from sensorpool.worker.context import Worker
from sensorpool.worker.figures import Figures
from tests.support.troubled import put_in_trouble

TICK = 0.2
CANNOT_KEEP_UP, APART = "the workers cannot keep up: ", "to be poked apart for more than 3 intervals"


class Hangs:
    """Hangs in every process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        time.sleep(30)
        return False


class TakesLong:
    """Takes long, and notes the time of each poke."""

    seconds: ClassVar[float] = 0.05
    poked: ClassVar[dict[str, list[float]]] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        self.poked.setdefault(self.name, []).append(time.monotonic())
        time.sleep(self.seconds)
        return False


@pytest.fixture
def pool(make_pool: Callable[..., Pool], redis_url: str) -> Pool:
    TakesLong.seconds = 0.05
    TakesLong.poked.clear()
    return make_pool(
        redis_url=redis_url,
        sensors_enabled=[f"{__name__}.Hangs", f"{__name__}.TakesLong"],
        shards=1,
        tick=TICK,
        poke_interval=TICK,
        poke_timeout=0.5,
        poke_concurrency=2,
        hanging_concurrency=4,
    )


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    time.sleep(TICK / 2)
    return worker.run_job(pool.ranges[0], "us").as_dict()


def late(pool: Pool) -> list[str]:
    """Return health's lines about late pokes."""
    return [line for line in findings.health(pool) if line.startswith(CANNOT_KEEP_UP) or APART in line]


def gauges(pool: Pool) -> dict[str, float]:
    found = Figures(pool.settings, pool.database, pool.leases).ask()
    return {each.name: each.value for each in found}


def test_more_groups_that_hang_than_are_poked_apart_turn_health_red(pool: Pool, worker: Worker) -> None:
    made = [pool.register(f"{__name__}.Hangs", {"name": str(number)}, timeout=600) for number in range(40)]
    put_in_trouble(pool.database, [each.group_id for each in made], overruns=1)
    assert job(worker, pool)["groups"] == 40
    assert late(pool) == []
    [line] = until("health to be red", lambda: job(worker, pool) and late(pool))
    assert line.split()[0].isdecimal()
    assert "SENSORPOOL_HANGING_CONCURRENCY" in line
    waiting = status.status(pool)["wait_apart"]
    assert 0 < waiting["overdue"] <= waiting["groups"] <= 40
    assert waiting["longest_s"] > 0.5 + 3 * TICK
    assert gauges(pool)["sensorpool_overdue_apart"] > 0
    assert gauges(pool)["sensorpool_wait_apart_seconds"] > 0.5
    for each in made:
        pool.cancel(each.id)
    until("health to be green: no instance waits for them", lambda: not late(pool))


def test_who_waits_for_long_intervals_to_be_poked_apart_is_not_late(pool: Pool, worker: Worker) -> None:
    made = [pool.register(f"{__name__}.Hangs", {"name": str(n)}, timeout=600, poke_interval=60) for n in range(12)]
    put_in_trouble(pool.database, [each.group_id for each in made], overruns=1)
    job(worker, pool)
    until("some to have waited", lambda: status.status(pool)["wait_apart"]["groups"], every=0.1)
    assert late(pool) == []


def test_status_counts_the_groups_that_are_poked_in_children(pool: Pool, worker: Worker) -> None:
    made = [pool.register(f"{__name__}.Hangs", {"name": str(number)}, timeout=600) for number in range(7)]
    put_in_trouble(pool.database, [each.group_id for each in made[:3]], strikes=2)
    put_in_trouble(pool.database, [each.group_id for each in made[3:5]], overruns=1)
    job(worker, pool)
    assert [each["isolated"] for each in status.status(pool)["ranges"]] == [5]


def test_fewer_slots_than_the_pokes_need_turn_health_red(pool: Pool, worker: Worker) -> None:
    """Each job ends in time, and leaves most due groups to the next one."""
    ids = [pool.register(f"{__name__}.TakesLong", {"name": str(number)}, timeout=600).id for number in range(60)]
    job(worker, pool)
    assert late(pool) == []
    [line] = until("health to be red", lambda: job(worker, pool) and late(pool))
    assert "more workers, a higher SENSORPOOL_POKE_CONCURRENCY, or longer intervals" in line
    assert status.status(pool)["left_over"]["overdue"] == gauges(pool)["sensorpool_overdue"] > 0
    until("all to be poked", lambda: job(worker, pool) and len(TakesLong.poked) == 60)
    TakesLong.seconds = 0
    until("health to be green", lambda: job(worker, pool) and not late(pool))
    for instance_id in ids:
        pool.cancel(instance_id)


def test_nobody_who_is_left_over_is_overtaken(pool: Pool, worker: Worker) -> None:
    """The group that has been left over for longest comes first, so no group waits much longer than the others."""
    for number in range(60):
        pool.register(f"{__name__}.TakesLong", {"name": str(number)}, timeout=600)
    until("all to be poked twice", lambda: job(worker, pool) and _fewest() >= 2)
    assert max(len(at) for at in TakesLong.poked.values()) <= _fewest() + 2


def _fewest() -> int:
    return min(len(at) for at in TakesLong.poked.values()) if len(TakesLong.poked) == 60 else 0


def test_a_backlog_that_long_intervals_allow_is_none(pool: Pool, worker: Worker) -> None:
    for number in range(60):
        pool.register(f"{__name__}.TakesLong", {"name": str(number)}, timeout=600, poke_interval=60)
    left_over = 0
    for _ in range(6):
        job(worker, pool)
        assert late(pool) == []
        left_over = max(left_over, status.status(pool)["left_over"]["groups"])
    assert left_over > 0


@pytest.mark.parametrize(("interval", "is_red"), [(5.0, True), (600.0, False)])
def test_a_holder_that_takes_intervals_for_its_job_turns_health_red(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], interval: float, is_red: bool
) -> None:
    """Although the holder lives, and its job has time left."""
    pool = make_pool(sensors_enabled=[f"{__name__}.Hangs"], shards=1, tick=1.0)
    worker, shard_range = make_worker(pool.settings), pool.ranges[0]
    pool.register(f"{__name__}.Hangs", {"name": "x"}, poke_interval=interval, timeout=3_600)
    held = worker.leases.acquire(shard_range, "before")
    assert not isinstance(held, str)
    held.lease.finish(RangeState(last=pool.database.read(pool.database.now) - 60_000))
    worker.leases.acquire(shard_range, "celery@here/1")
    problems = findings.health(pool)
    assert len(problems) == is_red
    for problem in problems:
        assert problem.startswith(
            "the holder of range 0-10000, celery@here/1, is not done with it: its last tick was 6"
        )
        assert problem.endswith(" s ago, and groups of it have an interval of 5 s")


def test_who_is_past_a_deadline_by_intervals_turns_health_red(pool: Pool) -> None:
    """The cause does not matter: nothing else is wrong."""
    made = [pool.register(f"{__name__}.Hangs", {"name": str(n)}, timeout=600, poke_interval=2) for n in range(3)]
    now = pool.database.read(pool.database.now)
    pool.database.now = lambda _: now  # type: ignore[method-assign]

    def past(*seconds: float) -> list[str]:
        with pool.database.engine.begin() as connection:
            for each, ago in zip(made, seconds, strict=True):
                deadline = now - round(1_000 * ago)
                connection.exec_driver_sql(
                    "UPDATE poke_group SET next_deadline = ? WHERE id = ?", (deadline, each.group_id)
                )
        return [line for line in findings.health(pool) if "past" in line]

    limit = 3 * 2 + 2 * 0.5 + TICK
    assert past(-600, 0, limit - 0.1) == []
    first, both = (
        f"group {made[2].group_id} ({__name__}.Hangs) by 6",
        f"group {made[1].group_id} ({__name__}.Hangs) by 9",
    )
    [line] = past(-600, 0, limit + 60)
    assert line.startswith(f"1 group is past its deadline by more than 3 intervals, {first}")
    [line] = past(-600, 90, limit + 60)
    assert line.startswith(f"2 groups are past their deadlines by more than 3 intervals, {both}")
