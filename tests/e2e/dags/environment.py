"""A DAG file that changes the environment of its tasks' processes."""

import os
from typing import Any

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG
from company import FlagSensor, RegionSensor

os.environ["COMPANY_REGION"] = "north"
os.environ.setdefault("AIRFLOW_CONN_COMPANY_FILES", '{"conn_type": "fs"}')


def prepare(_: Any) -> None:
    """Set something before the first poke."""
    os.environ["COMPANY_REGION"] = "south"


with DAG("environment", schedule=None, default_args={"poke_interval": 2, "timeout": 600}):
    RegionSensor(task_id="reads", flag="environment")
    RegionSensor(task_id="prepared", flag="environment", pre_execute=prepare)
    FileSensor(task_id="connection", fs_conn_id="company_files", filepath="{{ dag_run.conf['path'] }}")
    FlagSensor(task_id="asks_for_nothing", flag="environment")
