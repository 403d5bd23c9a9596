"""TriggerDagRunOperator where something goes wrong on the way to the pool: its run is started once, and waited for."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowException, DagRunTriggerException

from sensorpool.airflow import compat, slot, triggered_run
from sensorpool.errors import Refused, Unreachable
from tests.airflow.running import in_dag


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

    monkeypatch.setattr(compat, "start_dag_run", lambda request: found.append(request.dag_run_id) or True)
    monkeypatch.setattr(slot, "register", refuse)
    monkeypatch.setattr(slot, "keep", lambda *_: None)
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

    monkeypatch.setattr(slot, "register", lambda _: SimpleNamespace(id=1))
    monkeypatch.setattr(slot, "pool", lambda: SimpleNamespace(cancel=cancel))
    monkeypatch.setattr(compat, "start_dag_run", lambda _: False)
    with pytest.raises(DagRunTriggerException):
        wait(Ti(), reset=False)
