"""Backends that are away, in jobs: their groups are not poked, others are, and all go on when they answer again."""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.scripted import land, pokes
from harness.until import until
from sensorpool import Pool
from sensorpool.admin.findings import health
from sensorpool.admin.instances import show
from sensorpool.admin.status import overview, status
from sensorpool.model.states import State
from sensorpool.model.trouble import Trouble
from sensorpool.worker.context import Worker
from tests.support.builders import classpath
from tests.support.sensors.backends import Asks, NamesItsBackend, tell
from tests.support.troubled import put_in_trouble, trouble_of

TICK = 0.2
ASKS = classpath(Asks)


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    """A pool with one range."""
    return make_pool(
        sensors_enabled=[ASKS, classpath(NamesItsBackend)],
        shards=1,
        tick=TICK,
        poke_interval=TICK,
        poke_concurrency=8,
    )


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    """Run the job of the one range, as soon as a period of each group has begun."""
    time.sleep(TICK)
    return worker.run_job(pool.ranges[0], "us").as_dict()


def some(pool: Pool, folder: Path, conn_id: str, names: Iterable[str], **how: Any) -> dict[str, int]:
    """Register groups that ask the backend of a connection."""
    contexts = {name: {"folder": str(folder), "name": name, "conn_id": conn_id} for name in names}
    made = pool.register_many({"sensor": ASKS, "poke_context": each, **how} for each in contexts.values())
    return dict(zip(contexts, (instance.id for instance in made), strict=True))


def calls(folder: Path, names: Iterable[str]) -> int:
    """How many pokes these groups have had."""
    found = pokes(folder)
    return sum(len(found.get(name, ())) for name in names)


def go_away(worker: Worker, pool: Pool, folder: Path, how: str = "refuses") -> dict[str, int]:
    """Register groups of the backend `hive`, and have it go away."""
    waiting = some(pool, folder, "hive", [f"hive{n}" for n in range(40)])
    assert job(worker, pool)["poked"] == 40
    tell(folder, "hive", how)
    until("the outage", lambda: job(worker, pool) and status(pool)["away"], every=0.01)
    return waiting


def test_only_its_own_groups_wait_and_one_poke_at_a_time_asks(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    waiting = go_away(worker, pool, tmp_path)
    others = some(pool, tmp_path, "other", ["one", "two"])
    before = calls(tmp_path, waiting)
    done = job(worker, pool)
    assert done["poked"] <= 3
    assert done["held"] >= 39
    assert calls(tmp_path, others) == 2
    assert calls(tmp_path, waiting) <= before + 1
    [told] = status(pool)["away"]
    assert (told["backend"], told["why"]) == ("hive", "away")
    assert "Connection refused" in told["cause"]
    assert any("backend hive is away" in line for line in health(pool))
    assert any("backend hive is away" in line for line in overview(pool, None)["problems"])
    said = r"the backend hive is away, for \d+ s now; one poke asks it in \d+ s: .*refused"
    assert any(re.match(said, line) for line in status(pool)["problems"])
    tell(tmp_path, "hive", "answers")
    for name in waiting:
        land(tmp_path, name)
    until(
        "them to land",
        lambda: job(worker, pool) and set(pool.wait(waiting.values(), 0).values()) == {State.SUCCESS},
        every=0.01,
    )
    assert status(pool)["away"] == []
    assert not any("backend hive" in line for line in health(pool))


def test_no_sensor_times_out_without_a_poke_after_its_deadline(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    go_away(worker, pool, tmp_path)
    lands = some(pool, tmp_path, "hive", ["lands"], timeout=2 * TICK)
    ends = some(pool, tmp_path, "hive", ["ends"], timeout=2 * TICK)
    tell(tmp_path, "hive", "half")  # a group that is not refused has its answer
    land(tmp_path, "lands")
    deadline = time.time() + 2 * TICK
    ids = [*lands.values(), *ends.values()]
    until("their ends", lambda: job(worker, pool) and State.SENSING not in pool.wait(ids, 0).values(), every=0.01)
    assert pokes(tmp_path)["ends"][-1].at >= deadline - TICK


def test_the_name_is_no_part_of_the_identity(pool: Pool, tmp_path: Path) -> None:
    context = {"folder": str(tmp_path), "name": "one", "conn_id": "hive"}
    first, second = (pool.register(ASKS, context, backend=name) for name in ("here", "there"))
    assert first.group_id == second.group_id
    assert show(pool, second.id)["backend"] == "here", "the first one's name counts"


def test_groups_that_are_poked_apart_wait_for_their_backend_too(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    waiting = go_away(worker, pool, tmp_path)
    groups = [show(pool, each)["group_id"] for each in waiting.values()]
    put_in_trouble(pool.database, groups, overruns=1)
    before = calls(tmp_path, waiting)
    held = sum(job(worker, pool).get("held", 0) for _ in range(10))
    assert held >= 300
    assert calls(tmp_path, waiting) - before <= 10
    tell(tmp_path, "hive", "answers")
    seen = pokes(tmp_path)

    def all_poked() -> bool:
        job(worker, pool)
        found = pokes(tmp_path)
        return all(len(found[name]) > len(seen[name]) for name in waiting)

    until("a poke of each", all_poked, every=0.01)
    healthy = Trouble()
    until(
        "no trouble",
        lambda: job(worker, pool) and all(trouble_of(pool.database, each) == healthy for each in groups),
        every=0.01,
    )


def test_throttling_quiets_a_backend_at_once(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    waiting = some(pool, tmp_path, "hive", [f"hive{n}" for n in range(300)])
    tell(tmp_path, "hive", "throttles 30")
    assert job(worker, pool)["poked"] < 300
    before = calls(tmp_path, waiting)
    for _ in range(3):
        assert job(worker, pool)["poked"] == 0
    assert calls(tmp_path, waiting) == before
    [told] = status(pool)["away"]
    assert told["why"] == "throttled"
    assert 25 < told["asked_in_s"] <= 37.5
    assert set(pool.wait(waiting.values(), 0).values()) == {State.SENSING}


def test_a_job_of_another_process_knows_it(
    pool: Pool, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_away(worker, pool, tmp_path)
    with closing(Worker(pool.settings)) as other:
        done = job(other, pool)
    assert done["poked"] <= 1
    assert done["held"] >= 39


def test_a_long_interval_is_poked_soon_after_the_backend_answers(
    pool: Pool, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_away(worker, pool, tmp_path)
    long = some(pool, tmp_path, "hive", ["long"], poke_interval=86_400)
    assert job(worker, pool)["held"] >= 40
    state = worker.leases.look(pool.ranges)[0][1]
    assert len(state.left) == 1
    assert state.overdue == 0
    monkeypatch.setattr("sensorpool.worker.breakers.HEALED_KEPT", 0.0)
    before = calls(tmp_path, long)  # it may have had the turn to ask
    tell(tmp_path, "hive", "answers")
    # within a minute, at a moment of its own
    until("its poke", lambda: job(worker, pool) and calls(tmp_path, long) > before, 120, every=0.01)


@pytest.mark.parametrize(
    ("region", "backend"),
    [("eu", "s3://eu/endpoint"), ("nowhere", classpath(NamesItsBackend)), ("none", classpath(NamesItsBackend))],
)
def test_a_class_names_its_backend(pool: Pool, worker: Worker, tmp_path: Path, region: str, backend: str) -> None:
    sensor = classpath(NamesItsBackend)
    made = pool.register_many(
        {"sensor": sensor, "poke_context": {"region": region, "bucket": f"b{n}"}} for n in range(20)
    )
    job(worker, pool)
    assert [name for _, name in worker.poker.cache.kinds([made[0].group_id])] == [backend]
    [told] = status(pool)["away"]
    assert told["backend"] == backend
