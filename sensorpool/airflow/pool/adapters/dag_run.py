"""Runs of DAGs: what TriggerDagRunOperator waits for (`triggered_run`)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from airflow.models.dagrun import DagRun
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session
from sqlalchemy import select, tuple_

from sensorpool.airflow import compat
from sensorpool.airflow.pool.adapters.asking import read_each, rows_of, text_of
from sensorpool.errors import HandBack

TO_START = timedelta(minutes=5)  # what a start may take, and clocks may differ


def adapt(_: type) -> type["DagRuns"]:
    """Return what is poked in the place of TriggerDagRunOperator."""
    compat.become_server()
    return DagRuns


class DagRuns:
    """Answers all DAG runs that the pool waits for in one query."""

    @classmethod
    def poke_many(cls, contexts: Sequence[Mapping[str, Any]]) -> list[bool | Exception]:
        """Answer each context (``dag_id``, ``run_id``, ``allowed_states``, ``failed_states``, ``asked_at``).

        Whether its run is in an allowed state, or the exception of a failed one. A run that is not there may be about
        to be started; one that is not there `TO_START` after it was asked for is gone, and goes back to its worker,
        where Airflow says so.

        :raises Exception: when Airflow's database does not answer.
        """
        read = read_each(_read, contexts)
        keys = {(one.dag_id, one.run_id) for one in read if isinstance(one, _Wait)}
        query = select(DagRun.dag_id, DagRun.run_id, DagRun.state)
        with create_session() as session:
            rows = rows_of(query, tuple_(DagRun.dag_id, DagRun.run_id), keys, session)
            states = {(dag_id, run_id): str(state) for dag_id, run_id, state in rows}
        return [_answer(one, states.get((one.dag_id, one.run_id))) if isinstance(one, _Wait) else one for one in read]


class _Wait(NamedTuple):
    """One context, read."""

    dag_id: str
    run_id: str
    allowed: frozenset[str]
    failed: frozenset[str]
    asked_at: datetime


def _read(context: Mapping[str, Any]) -> _Wait:
    allowed, failed = frozenset(context["allowed_states"]), frozenset(context["failed_states"])
    asked_at = datetime.fromisoformat(context["asked_at"])
    return _Wait(text_of(context["dag_id"]), text_of(context["run_id"]), allowed, failed, asked_at)


def _answer(wait: _Wait, state: str | None) -> bool | Exception:
    """As ``_handle_trigger_dag_run`` of the task runner does, to the letter: failed states go first."""
    if state is None and datetime.now(UTC) - wait.asked_at > TO_START:
        return HandBack(f"run {wait.run_id} of {wait.dag_id} is not there any more")
    if state is not None and state in wait.failed:
        error: Exception = AirflowException(f"{wait.dag_id} failed with failed state {compat.state_as_told(state)}")
        return error
    return state in wait.allowed
