"""Operators that wait for a job: only one whose status the pool can ask for leaves its slot."""

import datetime as dt
import time
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.sdk import BaseOperator

from sensorpool.airflow.compat.exceptions import AirflowTaskTimeout, TaskDeferred
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.job import EXTERNAL_ID, adapt
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, resumable_job
from sensorpool.errors import InfraFailure
from sensorpool.model.states import Ending, State
from tests.airflow.running import context_of, in_dag, under_runner
from tests.airflow.versions import ResumableJobMixin


class Submits(ResumableJobMixin, BaseOperator):
    """Its jobs are as the test says."""

    status: ClassVar[Any] = "running"

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster

    def execute(self, context: Any) -> Any:
        """Submit, and wait."""
        return self.poll_until_complete(self.submit_job(context), context)

    def submit_job(self, context: Any) -> str:
        """Submit a job."""
        return "job-7"

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """Return or raise what the test says."""
        if isinstance(self.status, Exception):
            raise self.status
        return f"{self.status} {context['ti'].try_number}" if self.status == "asks" else str(self.status)

    def is_job_active(self, status: str) -> bool:
        """Whether a job runs."""
        return status == "running"

    def is_job_succeeded(self, status: str) -> bool:
        """Whether a job has ended well."""
        return status == "done"

    def poll_until_complete(self, external_id: Any, context: Any) -> str:
        """Wait on the worker."""
        return "waited on the worker"

    def get_job_result(self, external_id: Any, context: Any) -> str:
        """Return the result."""
        return "result"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Return why slots were kept; a task that registers leaves its slot."""
    reasons: list[Exception] = []

    def leave(*_: Any, **__: Any) -> None:
        raise TaskDeferred(trigger=None, method_name="x")

    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(error))
    monkeypatch.setattr(deferral, "register", lambda _: "instance")
    monkeypatch.setattr(deferral, "defer", leave)
    return reasons


def wait(status: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have an operator wait for its job."""
    monkeypatch.setattr(Submits, "status", status)
    operator = in_dag(Submits, cluster="c")
    context = context_of(operator)
    arguments = {"cluster": "c"}
    native = operator.poll_until_complete
    return resumable_job._wait_in_pool(operator, "tests.Submits", arguments, time.time(), {}, native, "job-7", context)


def test_a_job_that_runs_is_waited_for_in_the_pool(kept: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TaskDeferred):
        wait("running", monkeypatch)
    assert kept == []


def test_one_that_is_over_needs_no_pool(kept: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait("done", monkeypatch) == "waited on the worker"
    assert kept == []


@pytest.mark.parametrize("status", ["asks", ConnectionError("no REST port")])
def test_one_whose_status_the_pool_cannot_ask_for_keeps_its_slot(
    status: Any, kept: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wait(status, monkeypatch) == "waited on the worker"
    assert [type(error) for error in kept] == [NotPoolable]
    assert "could not ask for its status" in str(kept[0])


def test_its_execution_timeout_goes_on_in_the_pool(kept: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    monkeypatch.setattr(deferral, "register", registered.append)
    monkeypatch.setattr(Submits, "status", "running")
    operator = in_dag(Submits, cluster="c", execution_timeout=dt.timedelta(seconds=100))
    arguments = {"cluster": "c"}, time.time() - 40
    native = operator.poll_until_complete
    resumable_job._wait_in_pool(operator, "tests.Submits", *arguments, {}, native, "job-7", context_of(operator))
    assert 50 < registered[0].execution_timeout <= 60


def test_at_its_execution_timeout_it_is_killed_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(Submits, "on_kill", lambda _: killed.append(1))
    operator = in_dag(Submits, cluster="c", execution_timeout=dt.timedelta(seconds=100))
    event = InstanceResult(State.FAILED, Ending.EXECUTION_TIMEOUT, "because").as_payload()
    with pytest.raises(AirflowTaskTimeout, match="because"):
        under_runner(operator, lambda context: resumable_job.resume(operator, context, event, "job-7"))
    assert killed == [1]


def test_a_status_that_cannot_be_had_later_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = adapt(Submits)(cluster="c", **{EXTERNAL_ID: "job-7"})
    assert not job.poke({})
    monkeypatch.setattr(Submits, "status", ConnectionError("away"))
    with pytest.raises(InfraFailure, match="away"):
        job.poke({})
    monkeypatch.setattr(Submits, "status", "failed")
    assert job.poke({})
