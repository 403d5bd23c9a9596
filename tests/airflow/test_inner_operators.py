"""An operator that a task's own code executes runs as without sensorpool: only the running task may leave its slot."""

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.sensors.filesystem import FileSensor

from sensorpool.airflow.task import patch
from tests.airflow.running import as_runner, context_of, in_dag
from tests.airflow.test_resumable_job import Submits

INNER: dict[str, tuple[Callable[[], Any], str]] = {
    "sensor": (lambda: in_dag(FileSensor, filepath="/"), "sensor_task"),
    "deferrable sensor": (lambda: in_dag(FileSensor, filepath="/", deferrable=True), "own_deferral"),
    "rescheduled sensor": (lambda: in_dag(FileSensor, filepath="/", mode="reschedule"), "native_continuation"),
    "run": (lambda: in_dag(TriggerDagRunOperator, trigger_dag_id="x", wait_for_completion=True), "triggered_run"),
    "job": (lambda: in_dag(Resumes, cluster="x"), "resumable_job"),
}


class Resumes(Submits):
    """Waits for a job by Airflow's own protocol."""

    def execute(self, context: Any) -> Any:
        """Wait."""
        return self.execute_resumable(context)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The modules of ours that an operator enters."""
    found: list[str] = []
    is_enabled = "rescheduled" not in request.node.name
    monkeypatch.setattr(patch, "_part", found.append)
    monkeypatch.setattr(patch, "is_enabled", lambda: is_enabled)
    monkeypatch.setattr(patch, "_is_configured", lambda: True)
    monkeypatch.setattr(patch, "takes_deferrable", lambda: True)
    patch.install()
    native = FileSensor.execute
    patch.install_for(in_dag(FileSensor, filepath="/"))
    yield found
    if patch._OWN in vars(FileSensor):
        FileSensor.execute = native  # type: ignore[method-assign]
        delattr(FileSensor, patch._OWN)


@pytest.mark.parametrize("kind", INNER)
def test_an_inner_operator_enters_nothing_of_ours(entered: list[str], kind: str) -> None:
    make, ours = INNER[kind]
    running, inner, outer = make(), make(), in_dag(EmptyOperator)
    more = {"task_reschedule_count": 1, "task": running}
    with suppress(BaseException):
        as_runner(running, "execute", context_of(running, **more))
    assert ours in entered, "it is the running task"
    entered.clear()
    context = context_of(outer, **more)
    context["ti"].task = outer
    for given in (context, {**context}, {}, {"ti": None}, None):
        with suppress(BaseException):
            inner.execute(given)
        assert entered == [], given


def test_a_copy_of_the_running_task_is_not_it(entered: list[str], tmp_path: Path) -> None:
    running = in_dag(FileSensor, filepath=str(tmp_path), fs_conn_id="fs")
    context = context_of(running)
    context["ti"].task = running
    with suppress(BaseException):
        copy.copy(running).execute(context)
    assert entered == []
