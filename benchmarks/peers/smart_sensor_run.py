"""The original Smart Sensor; runs in an environment of its own, see smart_sensor.py.

``register PATHS`` registers a sensor for each line of a file as Airflow's tasks do; ``run INTERVAL`` is the operator.
"""

import logging
import os
import resource
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.models import DAG
from airflow.models.taskinstance import TaskInstance
from airflow.sensors.base import BaseSensorOperator
from airflow.sensors.smart_sensor import SmartSensorOperator
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, State
from airflow.utils.timezone import utcnow
from airflow.utils.types import DagRunType

TASKS = 100  # of one DAG run


class PathExists(BaseSensorOperator):
    """Holds when a path exists."""

    poke_context_fields = ("path",)
    pokes = os.open(os.environ["PEER_POKES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __init__(self, *, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def poke(self, context: Any) -> bool:  # noqa: ARG002  # the signature of sensors
        """Look for the file, and count the look."""
        os.write(self.pokes, b".")
        return os.path.exists(self.path)


def register(paths: list[str]) -> None:
    """Register sensors, and leave them in the state in which Airflow's own task runner leaves them."""
    start = utcnow() - timedelta(days=1)
    with DAG("peers", start_date=start, schedule_interval=None) as dag:
        tasks = [PathExists(task_id=f"wait_{n}", path="/") for n in range(min(TASKS, len(paths)))]
    dag.sync_to_db()
    for first in range(0, len(paths), TASKS):
        moment = start + timedelta(seconds=first)
        run = dag.create_dagrun(
            run_id=f"run{first}",
            run_type=DagRunType.MANUAL,
            state=DagRunState.RUNNING,
            execution_date=moment,
            data_interval=(moment, moment),
        )
        with create_session() as session:
            found = session.query(TaskInstance).filter_by(dag_id=dag.dag_id, run_id=run.run_id).all()
            instances: dict[str, TaskInstance] = {ti.task_id: ti for ti in found}
            for task, path in zip(tasks, paths[first : first + TASKS], strict=False):
                task.path = path
                instance = instances[task.task_id]
                instance.task, instance.operator = task, task.task_type
                instance.state, instance.start_date = State.SENSING, utcnow()
                task.register_in_sensor_service(instance, {"ti": instance})


def main() -> None:
    """Run."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the operator keeps an open log for each sensor
    command, argument = sys.argv[1:]
    if command == "register":
        register(Path(argument).read_text().split())
    else:
        operator = SmartSensorOperator(task_id="smart_sensor_task", poke_interval=float(argument), poke_timeout=10)
        # four lines in a round; the lines of the sensors go to their own logs, as usual
        operator.log.addHandler(logging.StreamHandler())
        operator.execute({})


if __name__ == "__main__":
    main()
