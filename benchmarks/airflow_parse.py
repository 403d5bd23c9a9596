"""The parse of a DAG file of 500 sensors: without sensorpool, and with each way for its sensors to begin.

Run in the environment of `make e2e`::

    .venv-e2e/bin/python -m benchmarks.airflow_parse

Each way has a process of its own, as each parse of Airflow's DAG processor has. Its first parse imports what is used;
then the file is parsed again and again. A parse is that of Airflow's `DagBag`, with policies, and the serialization.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click
from rich.table import Table

from benchmarks import report

FILE = """
from airflow.sdk import DAG
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor

with DAG("parsed", schedule="@daily", params={"region": "eu"}):
    for number in range(SENSORS):
        name, place = f"wait{number}", "/{{ ds }}/{{ params.region }}"
        if number % 10 == 0:
            HttpSensor(task_id=name, endpoint=place, headers={"run": "{{ run_id }}"})
        elif number % 10 == 1:
            ExternalTaskSensor(task_id=name, external_dag_id="other", external_task_id="load_{{ ds }}")
        else:
            FileSensor(task_id=name, filepath=f"/data{place}/{number}")
"""
WAYS: dict[str, Mapping[str, str]] = {
    "without sensorpool": {"ENABLED": "False"},
    "start = worker": {"ENABLED": "True", "START": "worker"},
    "start = scheduler": {"ENABLED": "True", "START": "scheduler"},
}
CHILD = """
import json, sys, time

from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

def parse():
    began = time.process_time()
    (dag,) = DagBag(dag_folder=sys.argv[1], collect_dags=False).process_file(sys.argv[1], only_if_updated=False)
    size = len(json.dumps(DagSerialization.to_dict(dag)))
    return time.process_time() - began, size, sum(task.start_from_trigger for task in dag.tasks)

first, size, begin = parse()
again = min(parse()[0] for _ in range(int(sys.argv[2])))
print(json.dumps({"first": first, "again": again, "size": size, "begin": begin}))
"""


def measure(sensors: int, times: int) -> list[tuple[str, dict[str, float]]]:
    """Parse a file by each way; return what each takes, in seconds of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "parsed.py"
        file.write_text(FILE.replace("SENSORS", str(sensors)))
        found = []
        for way, options in WAYS.items():
            section = {"DATABASE_URL": f"sqlite:///{folder}/pool", "REDIS_URL": "redis://127.0.0.1:1", **options}
            ours = {f"AIRFLOW__SENSORPOOL__{name}": value for name, value in section.items()}
            more = {
                "AIRFLOW_HOME": folder,
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            }
            done = subprocess.run(
                [sys.executable, "-c", CHILD, str(file), str(times)],
                env={**os.environ, **more, **ours},
                capture_output=True,
                check=True,
                text=True,
            )
            found.append((way, json.loads(done.stdout.splitlines()[-1])))
        return found


@click.command(help=__doc__)
@click.option("--sensors", default=500)
@click.option("--times", default=10, help="Parses after the first one; the quickest counts.")
def main(sensors: int, times: int) -> None:
    """Print a table."""
    table = Table(
        "way",
        "first parse (ms of CPU)",
        "again (ms)",
        "a sensor (ms)",
        "ratio",
        "serialized (KB)",
        "begin without a worker",
    )
    found = measure(sensors, times)
    base = found[0][1]["again"]
    for way, one in found:
        again = one["again"]
        table.add_row(
            way,
            f"{one['first'] * 1000:.0f}",
            f"{again * 1000:.0f}",
            f"{(again - base) / sensors * 1000:.2f}",
            f"{again / base:.2f}",
            f"{one['size'] / 1000:.0f}",
            f"{one['begin']:.0f}",
        )
    report.console.print(table)


if __name__ == "__main__":
    main()
