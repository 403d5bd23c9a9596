"""Output that cannot be written: each command says so in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not FULL.exists(), reason="no device that is always full"),
]


@pytest.mark.parametrize("asked", ["--help", "-h", "--version", "status --help", "config"])
@pytest.mark.parametrize("program", ["sensorpool", "celery -A sensorpool sensorpool"])
def test_a_full_disk_is_one_line(tmp_path: Path, program: str, asked: str) -> None:
    said = _says(program, asked, tmp_path)
    assert said.returncode == 1
    assert said.stderr.splitlines() == [
        "sensorpool: OSError: [Errno 28] No space left on device (SENSORPOOL_LOG_LEVEL=DEBUG shows where)"
    ]


def test_the_place_is_shown_on_request(tmp_path: Path) -> None:
    said = _says("sensorpool", "--help", tmp_path, SENSORPOOL_LOG_LEVEL="DEBUG")
    assert said.returncode == 1
    assert "Traceback" in said.stderr
    assert said.stderr.endswith("No space left on device\n")


def _says(program: str, asked: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    with FULL.open("w") as full:
        return subprocess.run(
            [sys.executable, "-m", *program.split(), *asked.split()],
            env=os.environ | {"XDG_STATE_HOME": str(folder)} | environment,
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
