"""A company's sensor: a first poke on a worker proves its class, and then it begins without one."""

from airflow.sdk import DAG
from company import FlagSensor

with DAG("proves", schedule=None):
    FlagSensor(task_id="wait", flag="{{ run_id }}", poke_interval=2)
