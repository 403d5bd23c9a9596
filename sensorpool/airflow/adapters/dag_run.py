"""Runs of DAGs: what TriggerDagRunOperator waits for (`triggered_run`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session
from sqlalchemy import select, tuple_

from sensorpool.airflow import compat


def adapt(_: type) -> type["DagRuns"]:
    """Return what is poked in the place of TriggerDagRunOperator."""
    compat.become_server()
    return DagRuns


class DagRuns:
    """Answers all DAG runs that the pool waits for in one query."""

    @classmethod
    def poke_many(cls, contexts: Sequence[Mapping[str, Any]]) -> list[bool | Exception]:
        """Answer each context: whether its run is in an allowed state, or the exception of a failed one.

        :raises Exception: when Airflow's database does not answer.
        """
        keys = {(context["dag_id"], context["run_id"]) for context in contexts}
        query = select(DagRun.dag_id, DagRun.run_id, DagRun.state)
        with create_session() as session:
            rows = session.execute(query.where(tuple_(DagRun.dag_id, DagRun.run_id).in_(keys)))
            states = {(dag_id, run_id): str(state) for dag_id, run_id, state in rows}
        return [_answer(context, states.get((context["dag_id"], context["run_id"]))) for context in contexts]


def _answer(context: Mapping[str, Any], state: str | None) -> bool | Exception:
    """As ``_handle_trigger_dag_run`` of the task runner does."""
    if state in context["failed_states"]:
        error: Exception = AirflowException(f"{context['dag_id']} failed with failed state {state}")
        return error
    return bool(state in context["allowed_states"])
