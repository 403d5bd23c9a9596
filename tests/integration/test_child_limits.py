"""Celery's limits replace children between two jobs; groups that are poked apart, or take long, go on all the same."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.scripted import land, pokes
from harness.service import Service, children
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.states import State
from sensorpool.poke.child import START_LIMIT
from sensorpool.worker import context as worker
from sensorpool.worker.background import Background
from sensorpool.worker.context import Worker
from tests.support.troubled import put_in_trouble, trouble_of

SCRIPTED = "harness.scripted.ScriptedSensor"
WAITS = "tests.support.sensors.hanging.WaitsToBeKilled"


@pytest.mark.parametrize("option", ["--max-tasks-per-child=1", "--max-memory-per-child=1000"])
def test_what_hangs_and_what_crashes_end_though_children_are_replaced_after_each_job(
    service: Service, tmp_path: Path, option: str
) -> None:
    service.worker(option)
    service.beat()
    until("the first tick of every range", service.is_ready)
    before = {child.pid for child in children(service.processes[0])}
    until("others", lambda: before.isdisjoint(child.pid for child in children(service.processes[0])))

    def register(name: str, script: str, timeout: float) -> int:
        context = {"folder": str(tmp_path), "name": name, "script": script}
        return service.pool.register(SCRIPTED, context, timeout=timeout).id

    hangs, crashes = register("hangs", "hang", 8), register("crashes", "exit", 600)
    waits = register("waits", "wait", 600)
    until("a poke", lambda: "waits" in pokes(tmp_path))
    land(tmp_path, "waits")
    ended = service.pool.wait([hangs, crashes, waits], 60)
    assert ended == {hangs: State.FAILED, crashes: State.FAILED, waits: State.SUCCESS}
    assert "timeout of 8 s" in str(service.json("show", str(hangs))["reason"])
    assert "quarantined" in str(service.json("show", str(crashes))["reason"])
    assert "exceeding memory limit" not in service.logs()


def test_a_child_over_a_limit_is_patient_for_a_while(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, busy, retired = 0.0, True, list[float]()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(Background, "is_busy", property(lambda _: busy))
    monkeypatch.setattr(Background, "retire", lambda _: retired.append(now))
    settings = make_pool(poke_timeout=10).settings
    patience = START_LIMIT + 30

    def worn(at: float, is_busy: bool, limit: str | None = "it has done 10 jobs") -> bool:
        nonlocal now, busy
        now, busy = at, is_busy
        return each.wears_out(limit)

    now = 0.0
    each = make_worker(settings)
    assert not worn(1, True, None)
    assert not worn(1_000, True)
    assert not worn(1_000 + patience - 1, True)
    assert not retired
    assert not worn(1_000 + patience, True), "what has begun goes on"
    assert retired
    assert worn(1_000 + patience + 1, False)
    assert not worn(1_000 + 2 * patience - 1, True)
    assert worn(1_000 + 2 * patience, True), "but not for ever"
    now = 0.0
    each = make_worker(settings)
    assert not worn(5, False, None)
    assert worn(5, False), "nothing ends with it"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    quick = {"shards": 1, "tick": 0.2, "poke_interval": 3_600.0, "poke_timeout": 60.0, "hanging_concurrency": 1}
    return make_pool(sensors_enabled=[WAITS], **quick)


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    """Run the job of the one range, as soon as half a tick has passed."""
    threading.Event().wait(0.2)
    return worker.run_job(pool.ranges[0], "us").as_dict()


def isolated(pool: Pool) -> set[int]:
    """Return the groups that processes poke in children, as Redis knows."""
    [notes] = pool.leases.isolated(pool.ranges)
    return {group_id for note in notes for group_id in note.ids}


def test_what_has_not_begun_is_given_to_the_next_child_and_what_has_goes_on(
    pool: Pool, worker: Worker, make_worker: Callable[[Settings], Worker], tmp_path: Path
) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    made = [pool.register(WAITS, {"pid_file": str(file)}) for file in files]
    groups = [each.group_id for each in made]
    put_in_trouble(pool.database, groups, overruns=1)
    assert job(worker, pool)["groups"] == 2

    def begun() -> list[int]:
        return [number for number, file in enumerate(files) if file.exists()]

    [going] = until("the poke that there is room for", begun)
    worker.background.retire()
    assert isolated(pool) == {groups[going]}
    other = Worker(pool.settings)
    try:
        assert job(other, pool)["groups"] == 1, "though none is due"
        until("the other poke", lambda: len(begun()) == 2)
        assert isolated(pool) == set(groups)
        assert trouble_of(pool.database, groups[1 - going]).overruns == 1
        assert job(other, pool)["groups"] == 0
        os.kill(int(files[going].read_text()), 0)
        assert worker.background.is_busy, "the first goes on"
    finally:
        other.close()


def test_a_child_that_is_about_to_go_takes_no_group_into_children(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    made = pool.register(WAITS, {"pid_file": str(file)})
    put_in_trouble(pool.database, [made.group_id], overruns=1)
    worker.background.retire()
    for _ in range(3):
        assert job(worker, pool)["groups"] == 1, "it is due until a job has it poked"
        assert isolated(pool) == set()
    assert not worker.background.is_busy
    other = Worker(pool.settings)
    try:
        assert job(other, pool)["groups"] == 1
        until("its poke", file.exists)
        assert job(other, pool)["groups"] == 0
    finally:
        other.close()
