"""`sensorpool try`: one poke here and now, of each kind of sensor, and what goes wrong there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sensorpool.cli.main import main

SENSORS = """
import asyncio
import os
import sys

class Divides:
    def __init__(self, by):
        self.by = by

    def poke(self, context):
        return 1 / self.by

class Secret(Divides):
    def poke(self, context):
        raise ValueError("postgresql://me:swordfish@host/db")

class Waits:
    async def poke(self, context):
        await asyncio.sleep(0.01)
        return False

class Many:
    @staticmethod
    def poke_many(contexts):
        return [context["x"] > 1 for context in contexts]

class Prints:
    def poke(self, context):
        print("said by the poke")
        return True

class Takes:
    def __init__(self, names):
        self.first, self.left = names.pop(0), names

    def poke(self, context):
        return self.first == "a" and self.left == ["b"]

class Off(Divides):
    pass
"""


@pytest.fixture(autouse=True)
def _sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tried_sensors.py").write_text(SENSORS)
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"tried_sensors.{name}" for name in ("Divides", "Secret", "Waits", "Many", "Prints", "Takes")]
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", ",".join(names))
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", f"sqlite:///{tmp_path / 'none.db'}")


@pytest.mark.parametrize(
    ("name", "context", "outcome"),
    [
        ("Divides", {"by": 2}, "landed"),
        ("Divides", {"by": 0}, "poke_error"),
        ("Waits", {}, "not_landed"),
        ("Many", {"x": 1}, "not_landed"),
        ("Many", {"x": 2}, "landed"),
        ("Takes", {"names": ["a", "b"]}, "landed"),
    ],
)
def test_what_a_poke_sees(tmp_path: Path, name: str, context: dict[str, Any], outcome: str) -> None:
    ran = CliRunner().invoke(main, ["try", f"tried_sensors.{name}", json.dumps(context), "--json"])
    said = json.loads(ran.stdout)
    assert (said["outcome"], ran.exit_code) == (outcome, 1 if outcome == "poke_error" else 0)
    assert (said["traceback"] is not None) == (outcome == "poke_error")
    assert said["seconds"] >= 0
    assert not (tmp_path / "none.db").exists(), "nothing is registered"


def test_an_error_comes_with_its_traceback_without_secrets() -> None:
    ran = CliRunner().invoke(main, ["try", "tried_sensors.Secret", '{"by": 1}'])
    assert 'raise ValueError("postgresql://me:***' in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("poke error after ")
    assert "swordfish" not in ran.stdout


@pytest.mark.parametrize(
    ("name", "context", "said"),
    [
        ("Divides", "{}", "does not take this poke_context: TypeError"),
        ("Off", '{"by": 1}', "tried_sensors.Off is not enabled"),
        ("Divides", "{x", "the poke_context is not JSON"),
    ],
)
def test_what_registration_would_refuse_is_one_line(name: str, context: str, said: str) -> None:
    ran = CliRunner().invoke(main, ["try", f"tried_sensors.{name}", context])
    assert ran.exit_code in {1, 2}
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_what_a_poke_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sensorpool", "try", "tried_sensors.Prints", "--json"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["outcome"] == "landed"
    assert "said by the poke\n" in ran.stderr
    assert "Traceback" not in ran.stderr
