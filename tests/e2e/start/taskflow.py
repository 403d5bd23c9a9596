"""Sensors whose functions and class are defined here."""

import os
from pathlib import Path

from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, BaseSensorOperator, task
from airflow.sdk.bases.sensor import PokeReturnValue

WORK = Path(os.environ["CLUSTER_WORK"])


def is_there(run_id, path):
    """Whether a file of this run is there."""
    return (WORK / f"{path}.{run_id}").exists()


class Waits(BaseSensorOperator):
    """Waits for a file."""

    template_fields = ("path",)

    def __init__(self, *, path, **kwargs):
        super().__init__(**kwargs)
        self.path = path

    def poke(self, context):
        """Look for it."""
        return (WORK / self.path).exists()


def made(name):
    """Return a sensor with a closure."""

    @task.sensor(task_id=name, poke_interval=2)
    def wait(day, logical_date, params):
        value = [day, logical_date.to_date_string(), params["n"]]
        return PokeReturnValue((WORK / name).exists(), value)

    return wait


with DAG("taskflow", schedule=None, params={"n": 1}):
    made("closure")("{{ ds }}")
    PythonSensor(task_id="function", python_callable=is_there, op_kwargs={"path": "function"}, poke_interval=2)
    Waits(task_id="class", path="class.{{ run_id }}", poke_interval=2)
    PythonSensor(task_id="native", python_callable=lambda ti: (WORK / ti.task_id).exists(), poke_interval=2)
