"""Adaptive intervals in jobs: fewer pokes while a condition never landed so early, and never one too few."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from sqlalchemy import insert

from sensorpool import Pool, Settings
from sensorpool.admin.explain import explain
from sensorpool.admin.instances import show
from sensorpool.model.states import State
from sensorpool.model.usual_landing import family_code
from sensorpool.model.values import Milliseconds
from sensorpool.model.words import spell_time
from sensorpool.store.schema import landing
from sensorpool.worker.context import Worker
from tests.support.builders import classpath
from tests.support.moved_clock import Clock

DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000
MIDNIGHT = 20_000 * DAY
FIRST = 2 * HOUR  # after midnight: the earliest landing


class Partition:
    """Lands when the test says so."""

    lands: ClassVar[set[str]] = set()
    is_away: ClassVar[bool] = False
    poked: ClassVar[list[str]] = []

    def __init__(self, day: str) -> None:
        self.day = day

    def poke(self, context: Any) -> bool:
        self.poked.append(self.day)
        if self.is_away:
            raise ConnectionRefusedError
        return self.day in self.lands


@pytest.fixture
def clock() -> Clock:
    Partition.lands.clear()
    Partition.poked.clear()
    return Clock(MIDNIGHT)


@pytest.fixture
def pool(make_pool: Callable[..., Pool], clock: Clock, redis_url: str) -> Pool:
    made = make_pool(
        redis_url=redis_url,
        shards=1,
        tick=5.0,
        poke_interval=60.0,
        timeout=86_400.0,
        sensors_enabled=[classpath(Partition)],
        adaptive=True,
    )
    made.database._clock = clock
    return made


@pytest.fixture
def worker(pool: Pool, clock: Clock, make_worker: Callable[[Settings], Worker]) -> Worker:
    made = make_worker(pool.settings)
    made.database._clock = clock
    return made


def remember(pool: Pool, days: int, family: str = "sales") -> None:
    """Note earlier landings: two hours after midnight, and a minute later each day."""
    sensor = classpath(Partition)
    rows = [
        {
            "family": family_code(sensor, family),
            "digest": bytes([n]) * 32,
            "op_classpath": sensor,
            "logical_date": MIDNIGHT - n * DAY,
            "waiting_since": MIDNIGHT - n * DAY,
            "ended_at": MIDNIGHT - n * DAY + FIRST + (n - 1) * MINUTE,
            "ending": "landed",
            "waiters": 1,
            "pokes": 1,
        }
        for n in range(1, days + 1)
    ]
    pool.database.run(lambda connection: connection.execute(insert(landing), rows))


def wait_for(pool: Pool, **how: Any) -> int:
    today = datetime.fromtimestamp(MIDNIGHT / 1000, UTC)
    return pool.register(classpath(Partition), {"day": "today"}, family="sales", logical_date=today, **how).id


def play(worker: Worker, pool: Pool, clock: Clock, until: Milliseconds) -> int:
    """Run the jobs of each tick until a time; return how many pokes they made."""
    before = len(Partition.poked)
    while clock.ms < until:
        clock.ms += 5_000
        worker.run_job(pool.ranges[0], "us")
    return len(Partition.poked) - before


def test_a_condition_is_poked_sparsely_until_shortly_before_its_earliest_landing(
    pool: Pool, worker: Worker, clock: Clock
) -> None:
    remember(pool, 12)
    instance_id = wait_for(pool)
    assert play(worker, pool, clock, MIDNIGHT + MINUTE) >= 1, "its first poke is never left out"
    assert play(worker, pool, clock, MIDNIGHT + 101 * MINUTE) == 10
    shown = show(pool, instance_id)
    assert shown["next_poke_because"].startswith("every 600 s: it never landed so early; every 60 s from ")
    assert "is late" not in explain(pool, instance_id)["why"]
    until = MIDNIGHT + FIRST - 10 * MINUTE
    play(worker, pool, clock, until - MINUTE)
    for _ in range(24):  # until the first poke of the declared interval, and after it
        play(worker, pool, clock, clock.ms + 5_000)
        assert "is late" not in explain(pool, instance_id)["why"]
    assert shown["next_poke_at"] <= spell_time(until + MINUTE)
    assert "never landed" not in show(pool, instance_id, of_others=False)["next_poke_because"].partition(";")[2]
    play(worker, pool, clock, MIDNIGHT + FIRST - 5 * MINUTE)
    assert play(worker, pool, clock, MIDNIGHT + FIRST + 10 * MINUTE) == 15
    assert show(pool, instance_id)["next_poke_because"] == "every 60 s"
    Partition.lands.add("today")
    play(worker, pool, clock, clock.ms + MINUTE)
    assert pool.wait([instance_id], 0) == {instance_id: State.SUCCESS}


def test_a_first_poke_is_never_left_out_however_late_it_comes(pool: Pool, worker: Worker, clock: Clock) -> None:
    remember(pool, 12)
    worker.run_job(pool.ranges[0], "us")
    wait_for(pool)
    clock.ms += 5 * MINUTE  # no worker is there
    worker.run_job(pool.ranges[0], "us")
    assert len(Partition.poked) == 1
    assert play(worker, pool, clock, clock.ms + 20 * MINUTE) == 2


def test_one_that_fails_is_poked_as_declared_until_it_answers(
    pool: Pool, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two failures ten intervals apart are no failure that has lasted for the window."""
    remember(pool, 12)
    instance_id = wait_for(pool)
    play(worker, pool, clock, MIDNIGHT + MINUTE)
    monkeypatch.setattr(Partition, "is_away", True)
    assert play(worker, pool, clock, MIDNIGHT + 12 * MINUTE) >= 1, "the fault did not strike"
    assert play(worker, pool, clock, clock.ms + 10 * MINUTE) >= 9
    monkeypatch.setattr(Partition, "is_away", False)
    play(worker, pool, clock, clock.ms + MINUTE)
    assert play(worker, pool, clock, clock.ms + 20 * MINUTE) == 2
    assert pool.wait([instance_id], 0) == {instance_id: State.SENSING}


def test_an_odd_early_landing_is_found_within_ten_intervals(pool: Pool, worker: Worker, clock: Clock) -> None:
    remember(pool, 12)
    instance_id = wait_for(pool)
    play(worker, pool, clock, MIDNIGHT + 15 * MINUTE)
    Partition.lands.add("today")
    play(worker, pool, clock, clock.ms + 10 * MINUTE)
    assert pool.wait([instance_id], 0) == {instance_id: State.SUCCESS}


@pytest.mark.parametrize("days", [0, 9])
def test_without_ten_landings_the_interval_is_the_declared_one(
    pool: Pool, worker: Worker, clock: Clock, days: int
) -> None:
    if days:
        remember(pool, days)
    wait_for(pool)
    play(worker, pool, clock, MIDNIGHT + MINUTE)
    assert play(worker, pool, clock, MIDNIGHT + 31 * MINUTE) == 30


def test_a_deadline_has_its_poke(pool: Pool, worker: Worker, clock: Clock) -> None:
    remember(pool, 12)
    instance_id = wait_for(pool, timeout=25 * 60.0)
    play(worker, pool, clock, MIDNIGHT + 25 * MINUTE - 5_000)
    Partition.lands.add("today")
    play(worker, pool, clock, MIDNIGHT + 26 * MINUTE)
    assert pool.wait([instance_id], 0) == {instance_id: State.SUCCESS}, "the poke after the deadline saw it"


def test_a_wake_up_is_never_left_out(pool: Pool, worker: Worker, clock: Clock) -> None:
    remember(pool, 12)
    instance_id = wait_for(pool)
    play(worker, pool, clock, MIDNIGHT + 15 * MINUTE)
    Partition.lands.add("today")
    assert pool.wake(classpath(Partition), {"day": "today"}) == 1
    play(worker, pool, clock, clock.ms + 5_000)
    assert pool.wait([instance_id], 0) == {instance_id: State.SUCCESS}


def test_nothing_is_left_out_while_the_record_cannot_be_read(
    pool: Pool, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sensorpool.errors import Unreachable
    from sensorpool.worker import adaptive

    def away(*_: Any) -> None:
        raise Unreachable("away")

    remember(pool, 12)
    wait_for(pool)
    monkeypatch.setattr(adaptive.late_conditions, "of_groups", away)  # type: ignore[attr-defined]
    play(worker, pool, clock, MIDNIGHT + MINUTE)
    assert play(worker, pool, clock, MIDNIGHT + 11 * MINUTE) == 10


def test_the_setting_is_off_by_default() -> None:
    assert not Settings.load().adaptive
