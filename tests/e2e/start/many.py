"""Two hundred sensors in four DAGs: half of them wait for the same."""

import os

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG

WORK = os.environ["CLUSTER_WORK"]

for letter in "abcd":
    with DAG(f"many_{letter}", schedule=None):
        for number in range(50):
            own = f"{letter}{number}" if number % 2 else "all"
            FileSensor(
                task_id=f"wait{number}",
                filepath=f"{WORK}/{{{{ run_id }}}}/{own}",
                poke_interval=2,
                timeout=900,
                retries=0,
            )
