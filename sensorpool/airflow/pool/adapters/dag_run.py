"""Runs of DAGs: what TriggerDagRunOperator waits for (`task.triggered_run`)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select, tuple_

from sensorpool.airflow.compat import server_process, task_runtime
from sensorpool.airflow.compat.exceptions import AirflowException
from sensorpool.airflow.pool.adapters.queries import read_each, rows_of, text_of
from sensorpool.errors import HandBack

TO_START = timedelta(minutes=5)  # for the start of a run, and for clocks that differ


def adapt(_: type) -> type["DagRuns"]:
    """Return what is poked in the place of TriggerDagRunOperator."""
    server_process.become_server()
    return DagRuns


class DagRuns:
    """Answers all DAG runs that the pool waits for in one query."""

    @classmethod
    def poke_many(cls, contexts: Sequence[Mapping[str, Any]]) -> list[bool | Exception]:
        """Answer each context (``dag_id``, ``run_id``, ``allowed_states``, ``failed_states``, ``asked_at``).

        The answer is whether the run is in an allowed state, or the exception for a failed run. A missing run may be
        about to start. `TO_START` after its request a missing run counts as deleted: its task goes back to its worker,
        where Airflow reports that.

        :raises Exception: when Airflow's database does not answer.
        """
        read = read_each(_read, contexts)
        keys = {(wait.dag_id, wait.run_id) for wait in read if isinstance(wait, _Wait)}
        query = select(DagRun.dag_id, DagRun.run_id, DagRun.state)
        with create_session() as session:
            rows = rows_of(query, tuple_(DagRun.dag_id, DagRun.run_id), keys, session)
            states = {(dag_id, run_id): str(state) for dag_id, run_id, state in rows}
        return [
            _answer(wait, states.get((wait.dag_id, wait.run_id))) if isinstance(wait, _Wait) else wait for wait in read
        ]


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
    """Answer as ``_handle_trigger_dag_run`` of the task runner does, with the same text: failed states go first."""
    if state is None and datetime.now(UTC) - wait.asked_at > TO_START:
        return HandBack(f"run {wait.run_id} of {wait.dag_id} is not there any more")
    if state is not None and state in wait.failed:
        error: Exception = AirflowException(f"{wait.dag_id} failed with failed state {task_runtime.comms_state(state)}")
        return error
    return state in wait.allowed
