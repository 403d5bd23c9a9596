"""The DAG folder of the examples: its twelve sensors wait in the pool by default."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from sensorpool.airflow.configuration import AIRFLOW_SENSORS
from sensorpool.config.allowlist import Allowlist

FOLDER = Path(__file__).parents[2] / "examples" / "airflow_dags"
FILE = FOLDER / "dags" / "twelve_sensors.py"


def test_the_twelve_sensors_are_pooled_by_default() -> None:
    tasks = [task for task in runpy.run_path(str(FILE))["dag"].tasks if task.task_id != "all_there"]
    assert len(tasks) == 12
    enabled = Allowlist(AIRFLOW_SENSORS)
    paths = {f"{type(task).__module__}.{type(task).__qualname__}" for task in tasks}
    assert [path for path in sorted(paths) if path not in enabled] == []


def test_an_airflow_whose_home_is_the_example_finds_its_dags(tmp_path: Path) -> None:
    home = shutil.copytree(FOLDER, tmp_path / "home")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SENSORPOOL"))}
    asked = "from airflow.configuration import conf; print(conf.get('core', 'dags_folder'))"
    command = [sys.executable, "-c", asked]
    told = subprocess.run(
        command, env=plain | {"AIRFLOW_HOME": str(home)}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (Path(told.stdout.split()[-1]) / FILE.name).exists()
