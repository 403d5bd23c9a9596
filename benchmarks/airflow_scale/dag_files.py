"""The DAG files of this benchmark: plain files as users write them, one DAG each."""

from dataclasses import dataclass
from pathlib import Path

INTERVAL = 10  # seconds between two pokes of a condition; of a sensor that reschedules itself: 60, Airflow's usual
_FILE = '''"""{tasks} sensors."""

import os

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG

WORK = os.environ["CLUSTER_WORK"]

with DAG("{dag_id}", schedule=None, max_active_tasks=10_000):
    for number in range({tasks}):
        FileSensor(
            task_id=f"wait{{number}}",
            filepath=f"{{WORK}}/{{{{{{{{ run_id }}}}}}}}/{{number{shared}}}{own}",
            retries=0,
            timeout=7200,
            {given}
        )
'''


@dataclass(frozen=True)
class Way:
    """How the sensors of a case begin and wait.

    :param given: what the DAG file says beside the path.
    :param waiting: the state of a task that waits.
    """

    name: str
    given: str
    waiting: str = "deferred"


SCHEDULER = Way("scheduler", f"poke_interval={INTERVAL},")
WORKER = Way("worker", f"poke_interval={INTERVAL}, max_active_tis_per_dag=10_000,")
RESCHEDULE = Way("reschedule", 'mode="reschedule", poke_interval=60,', "up_for_reschedule")
POOLED = Way("pooled", "poke_interval=60, max_active_tis_per_dag=10_000,")  # as RESCHEDULE, in the pool
DEFERRABLE = Way("deferrable", f"poke_interval={INTERVAL}, deferrable=True, start_from_trigger=True,")


def write(folder: Path, way: Way, case: str, sensors: int, dags: int) -> list[str]:
    """Write the files of a case: 40 % of the sensors of a DAG wait for what others of it wait for.

    :return: the names of the DAGs.
    """
    dag_ids = [f"{way.name}_{case}_{number}" for number in range(dags)]
    for dag_id in dag_ids:
        tasks = sensors // dags
        text = _FILE.format(
            dag_id=dag_id, tasks=tasks, given=way.given, shared=f" % {max(1, round(tasks * 0.6))}", own=f"_{dag_id}"
        )
        path = folder / f"{dag_id}.py"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
    return dag_ids


def conditions(dag_ids: list[str], sensors: int) -> list[str]:
    """Return the names of the files that the sensors of a case wait for."""
    distinct = max(1, round(sensors // len(dag_ids) * 0.6))
    return [f"{number}_{dag_id}" for number in range(distinct) for dag_id in dag_ids]
