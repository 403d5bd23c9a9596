"""Tasks that the first release deferred: their triggers, contexts and events, to the letter, and this version.

``first_release.json`` is what `first_release_tasks` says when it runs with the code of that release.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.models.trigger import Trigger
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator
from airflow.sdk.module_loading import import_string
from airflow.triggers.base import TaskSuccessEvent
from airflow.utils.session import create_session

from harness.until import PATIENCE
from sensorpool import Pool, Settings
from sensorpool.airflow.compat.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.task import patch
from sensorpool.airflow.trigger import PoolTrigger
from sensorpool.airflow.triggerer import api_server
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Fact
from sensorpool.poke.poker import Poker
from tests.airflow.metadata import Metadata
from tests.airflow.running import Flag, as_runner, context_of, in_dag
from tests.airflow.versions import ResumableJobMixin
from tests.support import released

HERE = Path(__file__).parent
WRITTEN: dict[str, Any] = json.loads((HERE / "first_release.json").read_text())
EVENTS: dict[str, Any] = WRITTEN["events"]
ENDS = {
    "error": (ValueError, "no such day"),
    "fail": (AirflowFailException, "never"),
    "timeout": (AirflowSensorTimeout, "3600"),
    "skip": (AirflowSkipException, "not today"),
    "cancelled": (AirflowFailException, "marked or cleared"),
}


class Job(ResumableJobMixin, BaseOperator):
    """Has submitted its job."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.waited_for: list[Any] = []

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        raise AssertionError("it was submitted already")

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return "done"

    def is_job_active(self, status: str) -> bool:
        return False

    def is_job_succeeded(self, status: str) -> bool:
        return True

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        self.waited_for.append(external_id)

    def get_job_result(self, external_id: Any, context: Any) -> str:
        return f"the result of {external_id}"


def test_the_file_is_what_its_code_writes(tmp_path: Path) -> None:
    version = released.unpack(released.FIRST_RELEASE, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow.first_release_tasks"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(version), str(released.ROOT)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("\n{") :]) == WRITTEN


@pytest.fixture
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A pool that no worker pokes in, and this process's notifier."""
    made = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url))
    monkeypatch.setattr(api_server, "FIRST_ANSWER", 0.0)
    notifier = Notifier(made, AirflowSettings(resume_hold=0.0))
    monkeypatch.setattr(Notifier, "of_this_process", classmethod(lambda _: notifier))
    yield made
    notifier.close()
    made.close()


@pytest.mark.parametrize("kind", ["sensor", "job", "run"])
@pytest.mark.parametrize("outcome", [Outcome.LANDED, Outcome.POKE_ERROR])
def test_a_trigger_is_run(pool: Pool, airflow_metadata: Metadata, kind: str, outcome: Outcome) -> None:
    """From its row in Airflow's database."""
    one = pool.register("sensorpool.sensors.TimeSensor", {"target_time": "2100-01-01T00:00:00Z"})
    classpath, kwargs = WRITTEN[kind]["trigger"]
    with create_session() as session:
        row = Trigger(classpath, kwargs | {"instance_id": one.id})
        session.add(row)
        session.flush()
        session.refresh(row)
        trigger = import_string(row.classpath)(**row.kwargs)
    assert type(trigger) is PoolTrigger
    assert trigger.serialize() == (classpath, kwargs | {"instance_id": one.id})
    pool.settler.settle([Fact(one.group_id, 1, 10**13, outcome, reason="ValueError: no such day")])
    event = asyncio.run(_limited(_first(trigger)))
    if outcome is Outcome.POKE_ERROR:
        assert event.payload == {name: value for name, value in EVENTS["error"].items() if name != "xcom_value"}
    elif kwargs["direct"]:
        assert isinstance(event, TaskSuccessEvent)
    else:
        assert (event.payload["state"], event.payload["ending"]) == ("success", "landed")


async def _first(trigger: PoolTrigger) -> Any:
    async for event in trigger.run():
        return event
    raise AssertionError("it ended without an event")


async def _limited(made: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(made, PATIENCE)


def test_a_group_is_poked(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor, context = WRITTEN["sensor"]["registration"]
    monkeypatch.setattr(Flag, "answers", {"orders": True})
    cache = Poker(Settings.load(sensors_enabled=sensor)).cache
    kept = cache.keep(DueGroup(1, 1, 7, 1, 0, 60_000, 0, 0, None), sensor, json.dumps(context))
    [report] = kept.poke()
    assert report.outcome is Outcome.LANDED, report.reason


def resume(task: Any, written: dict[str, Any], event: Any, context: Any = None) -> Any:
    """Resume a task as Airflow does, with what the first release left for it."""
    patch.install()
    context = context or context_of(task)
    return as_runner(task, "resume_execution", written["method"], written["kwargs"] | {"event": event}, context)


@pytest.mark.parametrize("end", ENDS)
def test_a_sensor_ends_as_its_event_says(end: str) -> None:
    error, words = ENDS[end]
    with pytest.raises(error, match=words):
        resume(in_dag(Flag, flag="orders"), WRITTEN["sensor"], EVENTS[end])


def test_a_sensor_that_landed_has_its_value() -> None:
    assert resume(in_dag(Flag, flag="orders"), WRITTEN["sensor"], EVENTS["landed"]) is None
    assert resume(in_dag(Flag, flag="orders"), WRITTEN["sensor"], EVENTS["landed with a value"]) == ("a", 1)


def test_a_sensor_that_was_handed_back_runs_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flag, "answers", {"orders": True})
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    assert resume(in_dag(Flag, flag="orders"), WRITTEN["sensor"], EVENTS["handed back"]) is None


@pytest.mark.parametrize("end", ["landed", "handed back", "error"])
def test_a_job_is_waited_for_and_not_submitted_again(end: str) -> None:
    """Whatever the pool saw: the operator looks for itself."""
    task = in_dag(Job)
    assert resume(task, WRITTEN["job"], EVENTS[end]) == "the result of job-7"
    assert task.waited_for == ["job-7"]


@pytest.mark.parametrize("end", ["landed", "handed back", "error"])
def test_a_triggered_run_ends_as_it_has_ended(end: str) -> None:
    """Where the pool did not see its end, the operator looks for itself."""
    task = in_dag(TriggerDagRunOperator, trigger_dag_id="other", wait_for_completion=True, poke_interval=0)
    ti = SimpleNamespace(map_index=-1, xcom_pull=lambda **_: "run1", get_dagrun_state=lambda dag_id, run_id: "success")
    resume(task, WRITTEN["run"], EVENTS[end], {"ti": ti})
    assert task.trigger_run_id == "run1"
