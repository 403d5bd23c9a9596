"""The tries of task instances in Airflow's database: the current ones, and those that a later one has followed."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sensorpool.airflow.compat import features


def current(session: Any, ids: Collection[UUID]) -> dict[str, str | None]:
    """Return the states of those tries that are the latest of their tasks."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    # an Airflow that keeps earlier tries in this table too leaves them out by itself
    rows = session.execute(select(TaskInstance.id, TaskInstance.state).where(TaskInstance.id.in_(_as_stored(ids))))
    return {str(ti_id): state for ti_id, state in rows}


def earlier(session: Any, ids: Collection[UUID]) -> set[str]:
    """Return those tries that a later one has followed."""
    from sqlalchemy import select

    if features.has(features.TRIES_IN_ONE_TABLE):
        from airflow.models.taskinstance import TaskInstance

        archived = TaskInstance.working_set.is_(None)
        found = select(TaskInstance.id).where(TaskInstance.id.in_(_as_stored(ids)), archived)
        found = found.execution_options(include_all_attempts=True)
    else:
        from airflow.models.taskinstancehistory import TaskInstanceHistory

        ti_id = TaskInstanceHistory.task_instance_id
        found = select(ti_id).where(ti_id.in_(_as_stored(ids)))
    return {str(one) for one in session.scalars(found)}


def _as_stored(ids: Collection[UUID]) -> list[Any]:
    return list(ids) if features.has(features.TASK_IDS) else [str(one) for one in ids]
