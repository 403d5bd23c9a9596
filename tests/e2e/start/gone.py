"""Sensors that wait without a worker until their run, their DAG or they themselves are gone."""

import os

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG

WORK = os.environ["CLUSTER_WORK"]
ARGUMENTS = {"filepath": WORK + "/gone/{{ run_id }}", "poke_interval": 2, "timeout": 3600, "retries": 0}

for name in ("gone", "gone_dag", "paused"):
    with DAG(name, schedule=None):
        for number in range(2):
            FileSensor(task_id=f"wait{number}", **ARGUMENTS)
        if name == "gone" and not os.path.exists(f"{WORK}/removed"):
            FileSensor(task_id="removed", **ARGUMENTS)
