"""A sensor on its worker whose trigger could not start it in the pool, or has waited there without a worker before."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.sdk import get_parsing_context
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_TASK_ID as PARSED_FOR
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout, AirflowSkipException, TaskDeferred

from sensorpool import Pool, Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import START_ON_WORKER, STARTED, InstanceResult
from sensorpool.airflow.start import parse
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.saved_attributes import save
from sensorpool.model.states import Ending, State
from tests.airflow.running import Flag, as_runner, context_of, in_dag

FLAG = "tests.airflow.running.Flag"
TO_WORKER = {START_ON_WORKER: "the pool's database does not answer"}


@pytest.fixture(autouse=True)
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url, sensors_enabled=FLAG))
    monkeypatch.setattr(deferral, "pool", lambda: made)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True, start="scheduler"))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    patch.begins_on_worker.clear()
    patch.install()
    yield made
    made.close()


class Lines(list[str]):
    """The log of a task."""

    def info(self, message: str, *arguments: Any) -> None:
        """Keep a line."""
        self.append(message % arguments)

    warning = error = exception = info


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    kept = Lines()
    monkeypatch.setattr(Flag, "log", kept)
    return kept


def resume(sensor: Any, event: Any) -> Any:
    """Resume as Airflow's task runner does."""
    return as_runner(sensor, "resume_execution", patch.RESUME, {"event": event}, context_of(sensor))


def test_starts_as_on_any_worker(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        resume(in_dag(Flag, flag="later"), TO_WORKER)
    assert deferred.value.method_name == patch.RESUME
    monkeypatch.setattr(Flag, "answers", {"there": True})
    assert resume(in_dag(Flag, flag="there"), TO_WORKER) is None
    assert "sensorpool: starts on this worker: the pool's database does not answer" in lines


def test_starts_natively_with_sensorpool_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was deferred before `enabled` was off: the method by which it resumes is there all the same."""
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setattr(Flag, "answers", {"there": True})
    assert resume(in_dag(Flag, flag="there"), TO_WORKER) is None


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize(
    ("answer", "natively"), [(AirflowException("x"), AirflowException), (False, AirflowSensorTimeout)], ids=str
)
def test_ends_as_natively(answer: Any, natively: type[Exception], soft_fail: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(Flag, "answers", {"flag": answer})
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    ends = []
    for method, arguments in (("execute", ()), ("resume_execution", (patch.RESUME, {"event": TO_WORKER}))):
        sensor = in_dag(Flag, flag="flag", timeout=0, poke_interval=0.001, soft_fail=soft_fail)
        with pytest.raises(AirflowException) as raised:
            as_runner(sensor, method, *arguments, context_of(sensor))
        ends.append(type(raised.value))
        assert sensor.soft_fail is soft_fail
    assert ends == [ends[0]] * 2
    assert issubclass(ends[0], AirflowSkipException if soft_fail and natively is AirflowSensorTimeout else natively)


def test_the_end_of_a_wait_without_a_worker() -> None:
    sensor = in_dag(Flag, flag="now", timeout=60)
    saved = save(in_dag(Flag, flag="then"))
    late = InstanceResult(State.FAILED, Ending.TIMEOUT, "late").as_payload()
    with pytest.raises(AirflowSensorTimeout, match="late"):
        resume(sensor, {**late, STARTED: 1.0, **saved})
    assert sensor.flag == "then"


@pytest.mark.parametrize("odd", [{STARTED: "x"}, {STARTED: None}, {START_ON_WORKER: None}, {"as_started": 3}], ids=str)
def test_odd_parts_of_an_event_do_not_matter(odd: dict[str, Any]) -> None:
    payload = InstanceResult(State.SUCCESS, Ending.LANDED).as_payload()
    assert resume(in_dag(Flag, flag="x"), {**payload, **odd}) is None


def test_its_log_says_why_it_begins_on_a_worker(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    monkeypatch.setenv(PARSED_FOR, "wait")
    assert get_parsing_context().task_id == "wait"
    sensor = in_dag(Flag, flag="later")
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger
    with pytest.raises(TaskDeferred):
        as_runner(sensor, "execute", context_of(sensor))
    assert any("it begins on a worker: its class is not of a reviewed provider" in line for line in lines)
