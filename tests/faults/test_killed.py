"""Faults 1-7: processes killed (-9) around every step that changes state. Nothing is lost, nothing happens twice."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.scripted import land, pokes
from harness.service import Service, children, kill_tree
from harness.until import until
from sensorpool.publish import listen
from sensorpool.store import inspecting
from tests.faults.stand import Stand
from tests.faults.trial import FULL, SENSOR

STEPS = {
    "lease.after": 1,
    "load.after": 2,
    "poke.after": 3,
    "settle.before": 4,
    "settle.before_commit": 4,
    "settle.after_commit": 5,
    "publish.before": 5,
    "publish.after": 6,
    "finish.before": 6,
    "finish.after": 6,
}


@pytest.mark.parametrize("step", STEPS)
def test_worker_killed_at(stand: Stand, tmp_path: Path, step: str) -> None:
    for number, trial in enumerate(stand.trials(f"{STEPS[step]} worker killed at {step}", full=20)):
        once = tmp_path / f"killed{number}"
        heard: set[int] = set()
        with listen(stand.service.settings) as bodies:
            with trial.fault():
                kill_tree(stand.workers.pop())
                stand.add_worker(SENSORPOOL_FAILPOINT=f"{step}:kill:{once}")
                until("the kill", once.exists)
            trial.end()
            for body in bodies:  # sent at least once, by rescue if necessary
                heard.update(each["id"] for each in body["settled"])
                if heard >= set(trial.ids):
                    break


def has_ended(child: psutil.Process) -> bool:
    try:
        return child.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_child_killed(stand: Stand) -> None:
    for trial in stand.trials("7 prefork child killed", full=100):
        with trial.fault():
            child = children(stand.workers[0])[0]
            child.kill()
            until("its end", lambda child=child: has_ended(child))
            until("another", lambda: len(children(stand.workers[0])) == 2)
        trial.end()


def test_worker_killed_whole(stand: Stand) -> None:
    for trial in stand.trials("7 whole worker killed", full=50):
        with trial.fault():
            killed = stand.workers.pop()
            assert children(killed), "it was not at work"
            kill_tree(killed)
            stand.add_worker()
        trial.end()


def test_host_gone(stand: Stand) -> None:
    """All of a worker dies at once, the children of its isolated lane too. Another worker takes over what it had."""
    for trial in stand.trials("7 host gone with all of its processes", full=20):
        folder = str(stand.service.folder)
        hanging = [
            stand.service.pool.register(SENSOR, {"folder": folder, "name": f"hang{n}", "script": "hang"}).id
            for n in range(12)
        ]
        stand.add_worker()
        with trial.fault():
            until("both to poke in children", lambda: all(map(isolated_children, stand.workers)))
            killed = stand.workers.pop(0)
            kill_tree(killed)
        trial.end()
        until("the other to poke in children", lambda: isolated_children(stand.workers[0]))
        assert stand.service.json("quarantine") == []
        assert set(stand.service.pool.wait(hanging, 0).values()) == {"sensing"}
        for instance_id in hanging:
            stand.service.pool.cancel(instance_id)


def isolated_children(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The child processes in which a worker pokes groups that are isolated."""
    family = psutil.Process(worker.pid).children(recursive=True)
    return [each for each in family if not has_ended(each) and "sensorpool.poke.child_main" in each.cmdline()]


def test_whatever_pokes_a_group_is_killed(make_service: Callable[..., Service], tmp_path: Path) -> None:
    """A prefork child, and then children of the isolated lane: a kill from outside is no group's doing."""
    service = make_service(poke_timeout=20.0)
    scripts = {"killed": 3.0, "other": 0.0}
    made = {
        name: service.pool.register(SENSOR, {"folder": str(tmp_path), "name": name, "seconds": seconds}).id
        for name, seconds in scripts.items()
    }
    service.start(workers=1)
    known: set[int] = set()

    def killed_in_lane() -> int:
        """Kill what pokes it; return how many of the isolated lane have been killed so far."""
        for pid in {each.pid for each in pokes(tmp_path).get("killed", ())} - known:
            known.add(pid)
            lane = {each.pid for each in isolated_children(service.processes[0])}
            with contextlib.suppress(ProcessLookupError):  # its poke has come back, and the child has ended
                os.kill(pid, signal.SIGKILL)
                in_lane.extend(lane & {pid})
        return len(in_lane)

    in_lane: list[int] = []
    until("kills", lambda: killed_in_lane() >= 4, 120)
    assert service.json("quarantine") == []
    assert set(service.pool.wait(made.values(), 0).values()) == {"sensing"}
    for name in made:
        land(tmp_path, name)
    assert set(service.pool.wait(made.values(), 60).values()) == {"success"}


def test_storm_of_kills(stand: Stand, rng: random.Random) -> None:
    """Children die at random moments, one after the other, while conditions come true."""
    kills = 2_000 if FULL else 12
    trial = stand.trial(f"7 children killed at random, {kills} times", groups=40, sensors=60)
    with trial.fault():
        for number in range(kills):
            until("a child", lambda: children(stand.workers[0]))
            time.sleep(rng.uniform(0.0, 0.4))  # the test tries random moments
            rng.choice(until("a child", lambda: children(stand.workers[0]))).kill()
            if number % 50 < 10:
                trial.land([rng.choice(trial.names)])
    trial.end(patience=120)


def test_without_rescue_a_dead_publisher_leaves_its_results_untold(service: Service, tmp_path: Path) -> None:
    """The tests above depend on rescue: without it the outbox keeps the rows of a dead process."""
    made = service.pool.register_many(
        {"sensor": SENSOR, "poke_context": {"folder": str(tmp_path), "name": f"g{n}"}} for n in range(2)
    )
    for n in range(2):
        land(tmp_path, f"g{n}")
    once = tmp_path / "killed"
    service.environment["SENSORPOOL_RESCUE_INTERVAL"] = "86400"
    service.worker(SENSORPOOL_FAILPOINT=f"settle.after_commit:kill:{once}")
    service.beat()
    assert set(service.pool.wait([instance.id for instance in made], 60).values()) == {"success"}
    assert once.exists()
    assert service.pool.database.read(inspecting.oldest_unpublished) is not None


@pytest.mark.parametrize(
    ("step", "kept"), [("register.before", 0), ("register.before_commit", 0), ("register.after_commit", 1)]
)
def test_registrant_killed_at(make_service: Callable[..., Service], tmp_path: Path, step: str, kept: int) -> None:
    """A registration that was cut short leaves all or nothing; the same key can be registered again."""
    service = make_service()
    code = (
        "import sensorpool; print(sensorpool.register("
        f"{SENSOR!r}, {{'folder': {str(tmp_path)!r}, 'name': 'x'}}, dag_id='d', task_id='t', run_id='r').id)"
    )
    environment = os.environ | service.environment
    killed = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"SENSORPOOL_FAILPOINT": f"{step}:kill"}, capture_output=True
    )
    assert killed.returncode == -9
    assert service.pool.database.read(inspecting.count_waiting) == (kept, kept)
    again = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert service.pool.database.read(inspecting.count_waiting) == (1, 1)
