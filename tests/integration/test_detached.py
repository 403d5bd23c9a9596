"""A detached worker or beat that refuses to start: it has no standard error, so its log file says why."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.until import until

pytestmark = pytest.mark.processes

REFUSED = "critical sensorpool.service.refusals: it does not start: the broker is memory://"
COMMANDS = {
    "multi": ["multi", "start", "here@%h", "-A", "sensorpool"],
    "worker": ["-A", "sensorpool", "worker", "--detach", "--hostname=here@%h"],
    "beat": ["-A", "sensorpool", "beat", "--detach"],
}


def celery(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "celery", *arguments],
        env=os.environ | {"SENSORPOOL_DATABASE_URL": f"sqlite:///{folder / 'pool.db'}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_its_log_file_says_why_it_does_not_start(tmp_path: Path, command: str) -> None:
    name = "beat" if command == "beat" else "%n%I"
    files = [f"--logfile={tmp_path / name}.log", f"--pidfile={tmp_path / name}.pid"]
    assert celery(tmp_path, *COMMANDS[command], *files).returncode == 0, "Celery does not wait for what it detaches"
    log = tmp_path / ("beat.log" if command == "beat" else "here.log")
    try:
        said = until("the line", lambda: log.exists() and log.read_text().endswith("\n") and log.read_text())
        assert REFUSED in said
        assert len(said.splitlines()) == 1
    finally:
        for started in tmp_path.glob("*.pid"):  # it did start
            os.kill(int(started.read_text()), signal.SIGTERM)


def test_a_log_file_that_cannot_be_written_is_named_beside_the_refusal(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    done = celery(tmp_path, "-A", "sensorpool", "worker", f"--logfile={tmp_path / 'log'}")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith("sensorpool: the broker is memory://")
    assert second.startswith("sensorpool: the log file cannot be written: ")
