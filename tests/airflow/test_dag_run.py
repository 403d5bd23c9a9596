"""Triggered runs in the pool, against the task runner's own way to wait for them."""

import datetime as dt
import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

import structlog
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, timezone
from airflow.sdk.execution_time import task_runner
from airflow.utils.state import DagRunState

from sensorpool.airflow.compat import features
from sensorpool.airflow.compat.exceptions import AirflowException, DagRunTriggerException
from sensorpool.airflow.pool.adapters import dag_run
from sensorpool.airflow.pool.adapters.dag_run import DagRuns
from sensorpool.errors import HandBack
from tests.airflow.metadata import Metadata

STATES = [str(state) for state in DagRunState]
FIRST = timezone.datetime(2026, 11, 1)


def now() -> str:
    """Return the time of the call: a run that was asked for minutes ago, and is not there, counts as deleted."""
    return dt.datetime.now(dt.UTC).isoformat()


class Ended(BaseException):
    """The task runner has decided."""


@pytest.fixture(scope="module")
def runs(airflow_metadata: Metadata) -> dict[str, str]:
    """A run in each state, by its id."""
    with DAG("triggered", schedule=None, start_date=FIRST) as dag:
        EmptyOperator(task_id="a")
    serialized = airflow_metadata.add_dag(dag)
    dates = (FIRST + number * dt.timedelta(days=1) for number in itertools.count())
    return {airflow_metadata.add_run(serialized, next(dates), state): state for state in STATES}


def native(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what the task runner makes of one look at a triggered run."""
    comms = task_runner.SUPERVISOR_COMMS
    sleeps = iter((None, Ended()))

    def sleep(_: float) -> None:
        if (end := next(sleeps)) is not None:
            raise end

    def failed(_: Any, error: Exception, *__: Any) -> Exception:
        return error

    def send(msg: Any) -> Any:
        return None if isinstance(msg, task_runner.TriggerDagRun) else comms.send(msg)

    request = DagRunTriggerException(
        trigger_dag_id=context["dag_id"],
        dag_run_id=context["run_id"],
        conf=None,
        logical_date=None,
        reset_dag_run=False,
        skip_when_already_exists=False,
        wait_for_completion=True,
        allowed_states=context["allowed_states"],
        failed_states=context["failed_states"],
        poke_interval=1,
        deferrable=False,
        **({"run_after": None} if features.has(features.RUN_AFTER) else {}),
        **({"note": None} if features.has(features.RUN_NOTES) else {}),
    )
    log: Any = structlog.get_logger()
    with monkeypatch.context() as patch:
        patch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send))
        patch.setattr(task_runner, "time", SimpleNamespace(sleep=sleep))
        patch.setattr(task_runner, "_handle_current_task_failed", failed)
        patch.setattr(task_runner, "_handle_current_task_success", lambda *_: True)
        ti: Any = SimpleNamespace(xcom_push=lambda **_: None, rendered_map_index=None)
        try:
            return said(task_runner._handle_trigger_dag_run(request, {}, ti, log))
        except Ended:
            return False


def said(answer: Any) -> Any:
    return (type(answer), str(answer)) if isinstance(answer, Exception) else answer


def test_answers_are_those_of_the_task_runner(
    runs: dict[str, str], rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some_states() -> list[str]:
        return rng.sample(STATES, rng.choice((0, 1, 1, 2)))

    contexts = [
        {
            "dag_id": "triggered",
            "run_id": rng.choice(list(runs)),
            "allowed_states": some_states() or ["success"],
            "failed_states": some_states(),
            "asked_at": now(),
        }
        for _ in range(200)
    ]
    natively = [native(context, monkeypatch) for context in contexts]
    assert [said(answer) for answer in DagRuns.poke_many(contexts)] == natively
    assert {str(answer) for answer in natively} >= {"True", "False"}
    assert any(isinstance(answer, tuple) and answer[0] is AirflowException for answer in natively)


def test_a_run_that_is_not_there_yet_has_not_landed_and_one_that_is_gone_goes_back(airflow_metadata: Metadata) -> None:
    """Its waiting is registered before it is started."""
    context = {"dag_id": "triggered", "run_id": "nowhere", "allowed_states": ["success"], "failed_states": ["failed"]}
    assert DagRuns.poke_many([{**context, "asked_at": now()}]) == [False]
    assert DagRuns.poke_many([]) == []
    long_ago = (dt.datetime.now(dt.UTC) - dag_run.TO_START - dt.timedelta(seconds=1)).isoformat()
    (gone,) = DagRuns.poke_many([{**context, "asked_at": long_ago}])
    assert isinstance(gone, HandBack)


def test_a_bad_context_fails_alone(runs: dict[str, str]) -> None:
    run_id = next(run_id for run_id, state in runs.items() if state == "success")
    good: dict[str, Any] = {
        "dag_id": "triggered",
        "run_id": run_id,
        "allowed_states": ["success"],
        "failed_states": ["failed"],
        "asked_at": now(),
    }
    first, *bad, last = DagRuns.poke_many(
        [
            good,
            {},
            {**good, "asked_at": "soon"},
            {**good, "run_id": "a\0"},
            {**good, "dag_id": 7},
            {**good, "failed_states": None},
            good,
        ]
    )
    assert first is last is True
    assert [type(answer) for answer in bad] == [KeyError, ValueError, ValueError, ValueError, TypeError]


@pytest.mark.parametrize(("number", "statements"), [(0, 0), (1, 1), (200, 1), (501, 2)])
def test_the_number_of_statements(airflow_metadata: Metadata, number: int, statements: int) -> None:
    context = {"dag_id": "triggered", "allowed_states": ["success"], "failed_states": [], "asked_at": now()}
    with airflow_metadata.statements() as seen:
        assert DagRuns.poke_many([{**context, "run_id": f"no{one}"} for one in range(number)]) == [False] * number
    assert len(seen) == statements
