"""Sensors that begin without a worker, and some that need one."""

import os
from datetime import time, timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG, TaskGroup

WORK = os.environ["CLUSTER_WORK"]


def note(context):
    """Leave a file."""
    with open(f"{WORK}/called", "w") as file:
        file.write(context["ti"].task_id)


with DAG("starts", schedule=None, params={"suffix": "there"}):
    done = EmptyOperator(task_id="done")
    arguments = {"filepath": WORK + "/{{ run_id }}.{{ params.suffix }}", "poke_interval": 2}
    for number in range(20):
        FileSensor(task_id=f"file{number}", **arguments) >> done
    with TaskGroup("group"):
        never = {"filepath": f"{WORK}/never", "poke_interval": 2, "timeout": 20}
        FileSensor(task_id="late", **never)
        FileSensor(task_id="soft", soft_fail=True, **never)
    FileSensor(task_id="bad", filepath="{{ params.nothing }}", poke_interval=2)
    FileSensor(task_id="reschedule", mode="reschedule", **arguments)
    FileSensor(task_id="connected", filepath=WORK + "/{{ run_id }}.{{ conn.store.login }}", poke_interval=2)
    secret = WORK + "/{{ run_id }}.{{ conn.store.password }}"  # the pool keeps no secrets: it pokes on workers
    FileSensor(task_id="secret", mode="reschedule", filepath=secret, poke_interval=2)
    limits = {"execution_timeout": timedelta(seconds=12), "retries": 1, "retry_delay": timedelta(seconds=1)}
    FileSensor(task_id="limited", filepath=f"{WORK}/never", poke_interval=2, **limits)
    TimeSensor(task_id="time", target_time=time(0), poke_interval=2)
    FileSensor(task_id="callback", on_success_callback=note, **arguments)
    TimeDeltaSensor(task_id="delta", delta=timedelta(seconds=5), poke_interval=2)
    ExternalTaskSensor(task_id="external", external_dag_id="starts", external_task_id="file0", poke_interval=2)
