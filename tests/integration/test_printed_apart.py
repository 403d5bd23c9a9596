"""What sensor classes print while a command imports and constructs them is no part of the command's answer."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sensorpool import Pool, Settings
from sensorpool.store import inspecting
from sensorpool.store.migrate import upgrade

pytestmark = pytest.mark.processes

Run = Callable[..., subprocess.CompletedProcess[str]]

SENSORS = """
print("said at import")

class Prints:
    def __init__(self, name):
        print("said by", name)

    def poke(self, context):
        return False
"""
PATH_SENSOR = "sensorpool.sensors.PathSensor"
CLASS = "printing_sensors.Prints"


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(found)
    return found


@pytest.fixture
def run(tmp_path: Path, url: str) -> Run:
    """Runs the command line with a class that prints."""
    (tmp_path / "printing_sensors.py").write_text(SENSORS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {"PYTHONPATH": path, "SENSORPOOL_DATABASE_URL": url, "SENSORPOOL_SENSORS_ENABLED": f"{CLASS},{PATH_SENSOR}"}

    def run_it(*arguments: str, stdin: str = "", shell: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sensorpool", *arguments]
        if shell:
            command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
        return subprocess.run(
            command, env=os.environ | given, cwd=tmp_path, input=stdin, capture_output=True, text=True, timeout=60
        )

    return run_it


def waiting(url: str) -> int:
    with closing(Pool(Settings.load(database_url=url))) as pool:
        return pool.database.read(inspecting.count_waiting)[1]


def line(name: str) -> str:
    return json.dumps({"op_classpath": CLASS, "poke_context": {"name": name}}) + "\n"


def test_one_registration(run: Run, url: str) -> None:
    done = run("register", CLASS, '{"name": "a"}', "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "sensing"
    for said in ("said at import\n", "said by a\n"):
        assert done.stderr.count(said) == 1
    assert waiting(url) == 1


def test_registrations_of_lines(run: Run, url: str) -> None:
    done = run("register", "--from", "-", stdin=line("a") + "[]\n" + line("b"))
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["registered"], [each["line"] for each in answer["refused"]]) == (1, 2, [2])
    for said in ("said at import\n", "said by a\n", "said by b\n"):
        assert done.stderr.count(said) == 1
    assert waiting(url) == 2


def test_the_doctor(run: Run) -> None:
    done = run("doctor", "--json")
    assert {each["level"] for each in json.loads(done.stdout)} >= {"ok"}
    assert "said at import\n" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output_stops_no_registration(run: Run, url: str, closed: str) -> None:
    quiet = json.dumps({"op_classpath": PATH_SENSOR, "poke_context": {"path": "/nowhere/x"}})
    assert run("register", "--from", "-", stdin=quiet, shell=closed).returncode == 0
    assert waiting(url) == 1
