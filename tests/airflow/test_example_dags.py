"""The DAG folder of the examples: it is parsed by Airflow, and its twelve sensors wait in the pool by default."""

from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

from sensorpool.airflow.catalog import catalog
from sensorpool.airflow.configuration import AIRFLOW_SENSORS
from sensorpool.config.allowlist import Allowlist

DAGS = Path(__file__).parents[2] / "examples" / "airflow_dags" / "dags"


def test_the_twelve_sensors_are_pooled_by_default() -> None:
    found = DagBag(str(DAGS), include_examples=False)
    assert found.import_errors == {}
    tasks = [task for task in found.dags["twelve_sensors"].tasks if task.task_id != "all_there"]
    assert len(tasks) == 12
    enabled = Allowlist(AIRFLOW_SENSORS)
    paths = {f"{type(task).__module__}.{type(task).__qualname__}" for task in tasks}
    assert [path for path in sorted(paths) if path not in enabled] == []
    assert catalog is not None
