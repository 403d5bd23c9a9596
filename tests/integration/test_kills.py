"""Processes killed (-9) before and after every step that changes state: nothing is lost, nothing happens twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sensorpool.publish import listen
from sensorpool.states import State
from sensorpool.store import looking
from sensorpool.testing import land, pokes
from tests import audit
from tests.integration.test_main_run import SCRIPTED, register
from tests.service import Service, children, kill_tree, until

STEPS = (
    "lease.after",
    "load.after",
    "poke.after",
    "settle.before",
    "settle.before_commit",
    "settle.after_commit",
    "publish.before",
    "publish.after",
    "finish.before",
    "finish.after",
)


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_child_killed_at(service: Service, tmp_path: Path, step: str) -> None:
    ids = register(service, tmp_path, count=40, groups=20)
    for number in range(20):
        land(tmp_path, f"g{number}")
    once = tmp_path / "killed"
    heard: set[int] = set()
    with listen(service.settings) as bodies:
        service.worker(SENSORPOOL_FAILPOINT=f"{step}:kill:{once}")
        service.beat()
        assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
        for body in bodies:  # told at least once, by rescue if need be
            heard.update(each["id"] for each in body["settled"])
            if heard == set(ids):
                break
    assert once.exists(), "the failpoint was never reached"
    found = audit.read(service.pool.database)
    assert found.is_clean, found
    until("an empty outbox", lambda: service.pool.database.read(looking.oldest_unpublished) is None)


def test_without_rescue_a_dead_publisher_leaves_its_results_untold(service: Service, tmp_path: Path) -> None:
    """Rescue is what makes the test above true: without it the outbox keeps what a dead process left."""
    ids = register(service, tmp_path, count=4, groups=2)
    land(tmp_path, "g0")
    land(tmp_path, "g1")
    once = tmp_path / "killed"
    service.environment["SENSORPOOL_RESCUE_INTERVAL"] = "86400"
    service.worker(SENSORPOOL_FAILPOINT=f"settle.after_commit:kill:{once}")
    service.beat()
    assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
    assert once.exists()
    assert service.pool.database.read(looking.oldest_unpublished) is not None


@pytest.mark.parametrize(
    ("step", "kept"), [("register.before", 0), ("register.before_commit", 0), ("register.after_commit", 1)]
)
def test_a_registrant_killed_at(service: Service, tmp_path: Path, step: str, kept: int) -> None:
    """A registration that was cut short leaves all or nothing; the same key can be registered again."""
    code = (
        "import sensorpool; print(sensorpool.register("
        f"{SCRIPTED!r}, {{'folder': {str(tmp_path)!r}, 'name': 'x'}}, dag_id='d', task_id='t', run_id='r').id)"
    )
    environment = os.environ | service.environment
    killed = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"SENSORPOOL_FAILPOINT": f"{step}:kill"}, capture_output=True
    )
    assert killed.returncode == -9
    assert service.pool.database.read(looking.count_waiting) == (kept, kept)
    again = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert service.pool.database.read(looking.count_waiting) == (1, 1)


def test_a_child_and_then_the_whole_worker_killed_in_mid_batch(service: Service, tmp_path: Path) -> None:
    ids = register(service, tmp_path, count=60, groups=40)
    worker = service.worker()
    service.beat()
    until("pokes of all", lambda: len(pokes(tmp_path)) == 40)
    children(worker)[0].kill()
    for number in range(20):
        land(tmp_path, f"g{number}")
    kill_tree(worker)
    service.worker()
    for number in range(20, 40):
        land(tmp_path, f"g{number}")
    assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
    found = audit.read(service.pool.database)
    assert found.is_clean, found


def test_a_worker_frozen_past_its_lease_does_no_harm_when_it_thaws(service: Service, tmp_path: Path) -> None:
    ids = register(service, tmp_path, count=20, groups=20, timeout=600.0)
    worker = service.worker(concurrency=1)
    service.beat()
    until("pokes of all", lambda: len(pokes(tmp_path)) == 20)
    frozen = children(worker)[0]
    frozen.suspend()
    service.worker()
    for number in range(20):
        land(tmp_path, f"g{number}")
    assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
    frozen.resume()
    found = audit.read(service.pool.database)
    assert found.is_clean, found
