"""Sensors that wait for tasks, groups and runs of another DAG, natively and in the pool."""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.sdk import DAG, TaskGroup
from company import FlagSensor


def fail() -> None:
    """Fail."""
    raise RuntimeError("as it should")


with DAG("native_upstream", schedule=None):
    go = FlagSensor(task_id="go", flag="upstream", poke_interval=1, timeout=600)
    with TaskGroup("group") as group:
        EmptyOperator(task_id="x")
        EmptyOperator(task_id="y")
    go >> [EmptyOperator(task_id="good"), PythonOperator(task_id="bad", python_callable=fail, retries=0), group]

CASES: dict[str, dict[str, Any]] = {
    "task": {"external_task_id": "good"},
    "tasks": {"external_task_ids": ["good", "group.x"]},
    "task_failed": {"external_task_id": "bad", "failed_states": ["failed"]},
    "task_failed_softly": {"external_task_id": "bad", "failed_states": ["failed"], "soft_fail": True},
    "task_skipped": {"external_task_id": "bad", "skipped_states": ["failed"]},
    "group": {"external_task_group_id": "group"},
    "no_such_group": {"external_task_group_id": "nowhere"},
    "run": {"allowed_states": ["failed"]},
    "run_failed": {"failed_states": ["failed"]},
    "hour_before": {"external_task_id": "good", "execution_delta": timedelta(hours=1)},
    "never_ran": {"external_task_id": "good", "execution_delta": timedelta(hours=7), "timeout": 8},
}

for mode in ("native", "pooled"):
    with DAG(f"{mode}_downstream", schedule=None):
        for case, given in CASES.items():
            options = {"poke_interval": 2, "timeout": 600, "retries": 0} | given
            ExternalTaskSensor(task_id=case, external_dag_id="native_upstream", **options)
