"""A poke that signals its own process, or the group of its process, ends as any sensor does, and holds up no other."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool.model.states import State
from tests.support.sensors import ending

SIGNALS = f"{ending.__name__}.Signals"
OTHER = "harness.scripted.ScriptedSensor"
FEW = 30  # pokes; a poke that is never set apart is made more than once a second


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    """A service of one shard range, so that the poke that signals stands beside all others."""
    service = make_service(shards=1, sensors_enabled=f"{SIGNALS},{OTHER}")
    service.environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    service.apart = True  # or a poke may signal the tests
    service.start()
    return service


@pytest.mark.parametrize("sign", ["SIGTERM", "SIGUSR1"])
def test_a_poke_that_signals_its_process_ends_as_any_other(service: Service, tmp_path: Path, sign: str) -> None:
    pokes = tmp_path / "pokes"
    other = service.pool.register(OTHER, {"folder": str(tmp_path), "name": "other"}).id
    bad = service.pool.register(SIGNALS, {"pokes": str(pokes), "sign": sign}, timeout=4).id
    until("the end of the sensor", lambda: service.pool.wait([bad], 0)[bad] is State.FAILED)
    assert 0 < len(pokes.read_text().split()) <= FEW
    assert ("a child died in its job" in service.logs()) is (sign == "SIGTERM")
    assert "SoftTimeLimitExceeded" not in service.logs(), "SIGUSR1 interrupts no job"
    land(tmp_path, "other")
    assert service.pool.wait([other], 30)[other] is State.SUCCESS


def test_a_poke_that_signals_its_group_ends_no_worker(service: Service, tmp_path: Path) -> None:
    pokes = tmp_path / "pokes"
    context = {"pokes": str(pokes), "sign": "SIGTERM", "group": True}
    bad = service.pool.register(SIGNALS, context, timeout=4).id
    other = service.pool.register(OTHER, {"folder": str(tmp_path), "name": "other"}).id
    until("the end of the sensor", lambda: service.pool.wait([bad], 0)[bad] is State.FAILED)
    assert 0 < len(pokes.read_text().split()) <= FEW
    assert service.processes[0].poll() is None
    land(tmp_path, "other")
    assert service.pool.wait([other], 30)[other] is State.SUCCESS


def test_a_terminals_signal_ends_a_worker_with_its_children(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Ctrl-C reaches the group of the main process only: it ends the children, and those that poke apart."""
    service = make_service(shards=1, poke_timeout=30.0)
    service.apart = True
    service.start()
    [waits] = [service.pool.register(OTHER, {"folder": str(tmp_path), "name": "slow", "seconds": 20}).id]
    worker = service.processes[0]
    until("a poke apart", lambda: any(service.pool.leases.isolated(service.pool.ranges)))
    family = psutil.Process(worker.pid).children(recursive=True)
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait(60) is not None
    assert psutil.wait_procs(family, 10)[1] == []
    assert service.pool.wait([waits], 0)[waits] is State.SENSING


def test_a_main_process_that_is_killed_leaves_no_child(service: Service) -> None:
    worker = service.processes[0]
    family = psutil.Process(worker.pid).children(recursive=True)
    assert family
    worker.kill()
    assert psutil.wait_procs(family, 10)[1] == []
