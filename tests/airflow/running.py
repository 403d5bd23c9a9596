"""A sensor's task without Airflow's task runner: its context, and its execute as the runner calls it."""

import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pluggy
import pytest
from airflow import policies
from airflow.sdk import DAG
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Pool, Settings
from sensorpool.airflow import policy
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.task import deferral, patch
from tests.airflow.versions import execute_under_runner


@dataclass
class Ti:
    """As much of a task instance as a sensor's task asks for."""

    dag_id: str
    task_id: str
    run_id: str = "run1"
    map_index: int = -1
    try_number: int = 1
    id: Any = field(default_factory=uuid4)

    def get_first_reschedule_date(self, _: Any) -> None:
        """It was never rescheduled."""


def in_dag(cls: Any, dag_id: str = "dag", **arguments: Any) -> Any:
    """Construct a sensor as a DAG file does."""
    with DAG(dag_id, schedule=None):
        return cls(task_id="wait", **arguments)


def context_of(sensor: BaseSensorOperator, **more: Any) -> dict[str, Any]:
    """Return a template context."""
    return {"ti": Ti(sensor.dag_id, sensor.task_id), **more}


def as_runner(sensor: BaseSensorOperator, method: str, *arguments: Any, **named: Any) -> Any:
    """Call a method of a task as the task runner does: only then its execute may be called, and may free the slot."""
    for given in (*arguments, *named.values()):
        if isinstance(given, dict) and "ti" in given:
            given["ti"].task = sensor
    context = contextvars.copy_context()
    context.run(ExecutorSafeguard.tracker.set, sensor)
    return context.run(getattr(sensor, method), *arguments, **named)


def under_runner(task: Any, execute: Callable[[Any], Any]) -> Any:
    """Execute as the task runner does, under the execution_timeout of the task."""
    return execute_under_runner(task, context_of(task), execute)


@contextmanager
def pool_of_process(
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
    redis_url: str,
    sensors_enabled: str,
    settings: Callable[[], AirflowSettings] | None = None,
) -> Iterator[Pool]:
    """Make the pool of this process, as a process of Airflow's has it, and patch Airflow's classes.

    :param settings: returns Airflow's settings; left out, they are those of the environment.
    """
    made = Pool(Settings.load(database_url=database_url, redis_url=redis_url, sensors_enabled=sensors_enabled))
    monkeypatch.setattr(deferral, "pool", lambda: made)
    monkeypatch.setattr(deferral, "airflow_settings", settings or AirflowSettings.load)
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    patch.install()
    with closing(made):
        yield made


def apply_policies(task: Any, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> None:
    """Call the cluster policies for a task, as Airflow does; a company's are registered before ours or after it."""
    manager = pluggy.PluginManager(policies.local_settings_hookspec.project_name)
    manager.add_hookspecs(policies)
    for plugin in (*before, policy, *after):
        manager.register(plugin)
    manager.hook.task_policy(task=task)


class PokesLog(list[Any]):
    """What a test sees of a class's pokes; by its name it is no state of theirs."""


class Flag(BaseSensorOperator):
    """Does what it is told."""

    template_fields = ("flag",)
    answers: Mapping[str, Any] = {}

    def __init__(self, *, flag: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flag = flag

    def poke(self, context: Any) -> Any:
        """Return or raise what stands under its flag."""
        answer = self.answers.get(self.flag, False)
        if isinstance(answer, BaseException):
            raise answer
        return answer(self, context) if callable(answer) else answer
