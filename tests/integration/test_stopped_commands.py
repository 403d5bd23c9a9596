"""What stops a service stops the commands of its pokes too: that is no answer, and no sensor fails by it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.service import Service, kill_tree
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.states import State
from tests.support.sensors import commands

pytestmark = pytest.mark.processes

SENSORS = [f"{commands.__name__}.{name}" for name in ("Command", "JudgedCommand", "TestedCommand")]
SENSOR = SENSORS[0]


def begun(folder: Path, names: list[str]) -> list[int]:
    """Return the processes of the commands once all have begun."""
    files = [folder / f"{name}.begun" for name in names]
    until("the commands", lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))
    return [int(file.read_text().split()[-1]) for file in files]


def begun_again(folder: Path, names: list[str], before: list[int]) -> list[int]:
    """Return the processes of the commands if all have begun once more."""
    pids = begun(folder, names)
    return [] if set(pids) & set(before) else pids


def assert_killed(folder: Path, pids: list[int]) -> None:
    """Assert that the commands have ended, and before their time."""
    until("the end of the commands", lambda: not any(map(psutil.pid_exists, pids)))
    assert not (folder / "ended").exists()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=lambda sign: sign.name)
def test_the_end_of_standalone(tmp_path: Path, sign: signal.Signals) -> None:
    """Ctrl-C in a terminal, or systemd: the service and its commands get the signal."""
    pokes = {"poke_interval": 3.0, "poke_timeout": 60.0, "tick": 0.5, "shards": 1}
    values = {"sensors_enabled": ",".join(SENSORS), "database_url": f"sqlite:///{tmp_path / 'pool.db'}"} | pokes
    environment = os.environ | {f"SENSORPOOL_{name.upper()}": str(value) for name, value in values.items()}
    environment |= {"XDG_STATE_HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    names = [path.rpartition(".")[2] for path in SENSORS]

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "sensorpool", "standalone"]
        return subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True)

    process = start()
    try:
        until("the tables", (tmp_path / "pool.db.standalone").exists)
        pool = Pool(Settings.load(**values))
        # the last one times out by the first poke that counts: it begins after the deadline
        waits = zip(SENSORS, names, (600, 600, 0.01), strict=True)
        ids = [
            pool.register(path, {"folder": str(tmp_path), "name": name}, timeout=timeout).id
            for path, name, timeout in waits
        ]
        pids = begun(tmp_path, names)
        process.send_signal(sign)
        os.killpg(process.pid, sign)
        assert process.wait(60) == 0
        assert_killed(tmp_path, pids)
        assert set(pool.wait(ids, 0).values()) == {State.SENSING}
        (tmp_path / "quick").touch()
        process = start()
        assert set(pool.wait(ids, 60).values()) == {State.SUCCESS}
        pool.close()
    finally:
        kill_tree(process)


def test_the_end_of_a_worker(make_service: Callable[..., Service], tmp_path: Path) -> None:
    """`systemctl stop`, where each process of the service gets the signal."""
    service = make_service(sensors_enabled=SENSOR, poke_timeout=60.0)
    service.environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    service.start()
    names = [f"n{number}" for number in range(6)]
    ids = [service.pool.register(SENSOR, {"folder": str(tmp_path), "name": name}).id for name in names]
    for pid in (first := begun(tmp_path, names)):  # before the worker is told
        os.kill(pid, signal.SIGTERM)
    assert_killed(tmp_path, first)
    pids = until("pokes that were made again", lambda: begun_again(tmp_path, names, first))
    worker = service.processes[0]
    others = [each.pid for each in psutil.Process(worker.pid).children(recursive=True) if each.pid not in pids]
    for pid in (*pids, *others, worker.pid):
        os.kill(pid, signal.SIGTERM)
    worker.wait(60)
    assert_killed(tmp_path, pids)
    assert set(service.pool.wait(ids, 0).values()) == {State.SENSING}
    (tmp_path / "quick").touch()
    service.worker()
    assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
