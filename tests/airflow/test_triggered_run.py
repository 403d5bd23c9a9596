"""TriggerDagRunOperator where something goes wrong on the way to the pool: its run is started once, and waited for."""

import json
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.compat.exceptions import (
    AirflowException,
    AirflowFailException,
    DagRunTriggerException,
    TaskDeferred,
)
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, patch, poolable, triggered_run
from sensorpool.errors import Refused, Unreachable
from sensorpool.model.states import Ending, State
from tests.airflow.running import as_runner, context_of, in_dag


class Ti:
    """A task instance whose run is under way for a while."""

    dag_id, task_id, run_id, map_index, try_number, id = "dag", "wait", "r", -1, 1, "id"

    def __init__(self, *states: str) -> None:
        self.states = list(states)
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        assert (dag_id, run_id) == ("other", "r1")
        return self.states.pop(0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were started; and the pool refuses everybody."""
    found: list[str] = []

    def refuse(_: Any) -> Any:
        raise Refused("dag has too many sensors waiting")

    monkeypatch.setattr(task_runtime, "start_dag_run", lambda request: found.append(request.dag_run_id) or True)
    monkeypatch.setattr(deferral, "register", refuse)
    monkeypatch.setattr(deferral, "report_native", lambda *_: None)
    return found


def wait(ti: Ti, *, reset: bool) -> None:
    operator = in_dag(
        TriggerDagRunOperator, trigger_dag_id="other", trigger_run_id="r1", wait_for_completion=True, poke_interval=0
    )
    request = DagRunTriggerException(
        trigger_dag_id="other",
        dag_run_id="r1",
        conf=None,
        logical_date=None,
        reset_dag_run=reset,
        skip_when_already_exists=False,
        wait_for_completion=True,
        allowed_states=["success"],
        failed_states=["failed"],
        poke_interval=1,
        deferrable=False,
    )
    triggered_run.wait_in_pool(operator, {"ti": ti}, request, "a.B")


def test_a_run_that_was_started_is_not_started_again(started: list[str]) -> None:
    """Airflow would reset it a second time."""
    ti = Ti("running", "running", "success")
    wait(ti, reset=True)
    assert (started, ti.states, ti.pushed) == (["r1"], [], {"trigger_run_id": "r1"})


def test_one_that_fails_is_a_failure(started: list[str]) -> None:
    with pytest.raises(AirflowException, match="failed"):
        wait(Ti("running", "failed"), reset=True)
    assert started == ["r1"]


def test_one_that_was_not_started_is_airflows(started: list[str]) -> None:
    with pytest.raises(DagRunTriggerException):
        wait(Ti(), reset=False)
    assert started == []


def test_what_cannot_be_cancelled_stops_nobody(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel(*_: Any) -> None:
        raise Unreachable("the database is away")

    monkeypatch.setattr(deferral, "register", lambda _: SimpleNamespace(id=1))
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(cancel=cancel))
    monkeypatch.setattr(task_runtime, "start_dag_run", lambda _: False)
    with pytest.raises(DagRunTriggerException):
        wait(Ti(), reset=False)


WAITS_FOR = {"dag_id": "other", "allowed": ["success"], "failed": ["failed"]}


def test_what_is_handed_back_waits_for_the_run_that_it_started(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its templates are rendered again where it resumes: they may name another DAG then."""
    monkeypatch.setattr(deferral, "register", lambda _: SimpleNamespace(id=1, opened=True))
    monkeypatch.setattr(deferral, "airflow_settings", lambda: SimpleNamespace(deferral_grace=1))
    with pytest.raises(TaskDeferred) as deferred:
        wait(Ti(), reset=True)
    kept = json.loads(json.dumps(deferred.value.kwargs))
    ti = Ti("queued", "success", "failed")
    vars(ti)["xcom_pull"] = lambda **_: "r1"
    operator = in_dag(
        TriggerDagRunOperator,
        trigger_dag_id="another",
        allowed_states=["queued"],
        failed_states=["success"],
        poke_interval=0,
    )
    triggered_run.resume(operator, {"ti": ti}, InstanceResult.handed_back("because").as_payload(), **kept)
    assert ti.states == ["failed"]


@pytest.mark.parametrize(
    ("ending", "is_retried"),
    [(Ending.POKE_ERROR, True), (Ending.EXECUTION_TIMEOUT, True), (Ending.CANCELLED, False), (Ending.FAIL, False)],
)
def test_only_a_run_that_failed_is_started_anew(ending: Ending, is_retried: bool) -> None:
    """Airflow retries unless it is told not to, and a retry starts a run."""
    state = State.CANCELLED if ending is Ending.CANCELLED else State.FAILED
    reason = "AirflowException: it says why" if ending is Ending.POKE_ERROR else "it says why"
    ti = SimpleNamespace(xcom_pull=lambda **_: "r1", map_index=-1)
    operator = in_dag(TriggerDagRunOperator, trigger_dag_id="other")
    event = InstanceResult(state, ending, reason).as_payload()
    with pytest.raises(AirflowException, match=r"^it says why$") as raised:
        triggered_run.resume(operator, {"ti": ti}, event, waits_for=WAITS_FOR)
    assert isinstance(raised.value, AirflowFailException) is not is_retried


def test_a_run_that_the_pool_could_not_see_is_waited_for() -> None:
    """The window of infrastructure failures is over, and the run goes on: a retry would start another beside it."""
    ti = Ti("running", "success")
    vars(ti)["xcom_pull"] = lambda **_: "r1"
    operator = in_dag(TriggerDagRunOperator, trigger_dag_id="other", poke_interval=0)
    unseen = InstanceResult(State.FAILED, Ending.POKE_ERROR, "OperationalError: refused (for longer than 7800 s)")
    triggered_run.resume(operator, {"ti": ti}, unseen.as_payload(), waits_for=WAITS_FOR)
    assert ti.states == []


class Derived(TriggerDagRunOperator):
    """Changes what is asked for."""

    def execute(self, context: Any) -> None:
        """Ask."""
        super().execute(context)


@pytest.mark.parametrize(("cls", "is_native"), [(TriggerDagRunOperator, False), (Derived, True)])
def test_a_derived_class_with_an_execute_of_its_own_is_airflows(
    monkeypatch: pytest.MonkeyPatch, cls: Any, is_native: bool
) -> None:
    """As patched: entered from its own ``execute``, after ``super()``."""
    kept: list[str] = []
    waits: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: kept.append(str(error)))
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(settings=None))
    monkeypatch.setattr(deferral, "airflow_settings", lambda: None)
    monkeypatch.setattr(poolable, "admit", lambda *_: "a.B")
    monkeypatch.setattr(triggered_run, "wait_in_pool", lambda *_: waits.append("in the pool"))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    patch.install()
    operator = in_dag(cls, trigger_dag_id="other", trigger_run_id="r1", wait_for_completion=True)
    with suppress(DagRunTriggerException):
        as_runner(operator, "execute", context_of(operator))
    assert (len(kept), len(waits)) == (is_native, not is_native)
