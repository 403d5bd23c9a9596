"""A DAG with a file to wait for."""

from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG

with DAG("smoke", schedule=None) as dag:
    wait = FileSensor(
        task_id="wait",
        filepath="{{ dag_run.conf['path'] }}",
        poke_interval=2,
        timeout=timedelta(minutes=10).total_seconds(),
    )
    wait >> EmptyOperator(task_id="then")
