"""Sensors of Airflow that wait for files that never come: see benchmarks/peers/airflow3.py."""

import os

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, task

INTERVAL = float(os.environ["PEER_INTERVAL"])
WAITING = {"task_id": "wait", "retries": 0, "timeout": 7200, "poke_interval": INTERVAL}


@task
def given(**context: object) -> list[str]:
    """Return the paths that this run waits for."""
    return context["dag_run"].conf["given"]  # type: ignore[attr-defined]


with DAG("reschedule", schedule=None, max_active_tasks=5000):
    FileSensor.partial(mode="reschedule", **WAITING).expand(filepath=given())

with DAG("deferrable_file", schedule=None, max_active_tasks=5000):
    FileSensor.partial(deferrable=True, **WAITING).expand(filepath=given())

with DAG("deferrable_external", schedule=None, max_active_tasks=5000):
    ExternalTaskSensor.partial(external_dag_id="upstream", deferrable=True, **WAITING).expand(external_task_id=given())

with DAG("upstream", schedule=None):
    for number in range(1000):
        EmptyOperator(task_id=f"never-{number}")
