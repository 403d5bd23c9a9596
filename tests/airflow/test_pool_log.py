"""What the pool's log has of Airflow's sensors: warnings, as warnings, in the pool's own form."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("airflow")

POKES = """
import logging, sys, threading
from sensorpool import Settings
from sensorpool.instrumentation import logs
from sensorpool.poke.classes import Classes

settings = Settings.load(sensors_enabled="airflow.providers.standard.sensors.filesystem.FileSensor")
logs.configure("text", "INFO", sys.argv[1])
printed = []
real, sys.stdout = sys.stdout, type("Printed", (), {"write": lambda self, text: printed.append(text), "flush": int})()


def poke():
    sensor = Classes(settings.sensors_enabled).find(*settings.sensors_enabled).construct({"filepath": "/no/such"})
    assert not sensor.poke({})
    sensor._operator.log.warning("a warning of %s", "the sensor", why="it is late", name="x")
    sensor._operator.log.info("an info of %s", "the sensor")
    try:
        raise ValueError("as told")
    except ValueError:
        sensor._operator.log.exception("it failed: %s", {"a": 1})


thread = threading.Thread(target=poke, name="poke")
thread.start()
thread.join()
logs.logger("sensorpool.test").info("a line of ours", shard=1)
logging.getLogger("airflow.providers").info("not of a poke")
assert not printed, printed
assert "airflow" in sys.modules
"""


@pytest.mark.parametrize("level", ["WARNING", "INFO"])
def test_what_a_sensor_logs_keeps_its_level_and_the_log_its_form(level: str) -> None:
    environment = os.environ | {"AIRFLOW_CONN_FS_DEFAULT": "fs://"}
    done = subprocess.run(
        [sys.executable, "-c", POKES, level], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ours = done.stderr.splitlines()
    name = "airflow.task.operators.airflow.providers.standard.sensors.filesystem.FileSensor"
    lines = [line.partition(" ")[2] for line in ours if not line.startswith("    ")]
    assert f'warning {name}: a warning of the sensor why="it is late" name=x' in lines
    assert f"error {name}: it failed: {{'a': 1}}" in lines
    assert "    ValueError: as told" in ours
    assert (f"info {name}: an info of the sensor" in lines) is (level == "INFO")
    assert any("Poking for file" in line for line in lines) is (level == "INFO")
    assert "info sensorpool.test: a line of ours shard=1" in lines
    assert "info airflow.providers: not of a poke" in lines
