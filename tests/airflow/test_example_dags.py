"""The DAG folder of the examples: its twelve sensors wait in the pool by default."""

import runpy
from pathlib import Path

from sensorpool.airflow.configuration import AIRFLOW_SENSORS
from sensorpool.config.allowlist import Allowlist

FILE = Path(__file__).parents[2] / "examples" / "airflow_dags" / "dags" / "twelve_sensors.py"


def test_the_twelve_sensors_are_pooled_by_default() -> None:
    tasks = [task for task in runpy.run_path(str(FILE))["dag"].tasks if task.task_id != "all_there"]
    assert len(tasks) == 12
    enabled = Allowlist(AIRFLOW_SENSORS)
    paths = {f"{type(task).__module__}.{type(task).__qualname__}" for task in tasks}
    assert [path for path in sorted(paths) if path not in enabled] == []
