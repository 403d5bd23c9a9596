"""The runs that an ExternalTaskSensor waits for, in sentences: whether each is there, how it fares, and its neighbours.

A wrong ``execution_delta`` is the usual reason why such a sensor waits without end: there is no run at that time, and
there is one beside it.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import func, select

from sensorpool.model.words import spell_span
from sensorpool.web.access import Reader

_RUNS = 3  # that are described
_TASKS = 10  # of a run that are described


def is_of_external_task(context: object) -> bool:
    """Whether a poke context is one of `pool.adapters.external_task.poke_context_of`."""
    return isinstance(context, Mapping) and {"external_dag_id", "logical_dates"} <= context.keys()


def told(context: Mapping[str, Any], reader: Reader, session: Any) -> str:
    """Return the sentences.

    :param reader: of a DAG that this reader may not see only its name is told, which is an argument of the sensor.
    :raises Exception: when Airflow's database does not answer, or the context was edited.
    """
    dag_id = str(context["external_dag_id"])
    if not reader.sees(dag_id):
        return f"they are of the DAG {dag_id}, which you may not see"
    paused = session.execute(select(DagModel.is_paused).where(DagModel.dag_id == dag_id)).scalar_one_or_none()
    if paused is None:
        return f"Airflow knows no DAG {dag_id}"
    dates = [dt.datetime.fromisoformat(date) for date in context["logical_dates"]]
    said = [_run(context, dag_id, date, session) for date in dates[:_RUNS]]
    if len(dates) > _RUNS:
        said.append(f"and {len(dates) - _RUNS} more")
    if paused:
        said.append(f"the DAG {dag_id} is paused")
    return "; ".join(said)


def _run(context: Mapping[str, Any], dag_id: str, date: dt.datetime, session: Any) -> str:
    of_date = (DagRun.dag_id == dag_id, DagRun.logical_date == date)
    found = session.execute(select(DagRun.run_id, DagRun.state).where(*of_date)).first()
    if found is None:
        return f"there is no run of {dag_id} at {_spell(date)}: {_neighbours(dag_id, date, session)}"
    said = f"the run {found.run_id} of {dag_id} is {found.state}"
    tasks = list(context.get("external_task_ids") or ())[:_TASKS]
    return f"{said}, {_tasks(dag_id, found.run_id, tasks, session)}" if tasks else said


def _tasks(dag_id: str, run_id: str, task_ids: list[str], session: Any) -> str:
    t = TaskInstance
    query = select(t.task_id, t.state, func.count()).where(
        t.dag_id == dag_id, t.run_id == run_id, t.task_id.in_(task_ids)
    )
    states: dict[str, list[str]] = {}
    for task_id, state, count in session.execute(query.group_by(t.task_id, t.state)):
        states.setdefault(task_id, []).append(f"{state or 'not begun'}{f' ({count} times)' if count > 1 else ''}")
    return ", ".join(
        f"its task {each} is {' and '.join(states[each])}" if each in states else f"it has no task {each}"
        for each in task_ids
    )


def _neighbours(dag_id: str, date: dt.datetime, session: Any) -> str:
    of_dag = select(DagRun.logical_date, DagRun.state).where(DagRun.dag_id == dag_id)
    before = of_dag.where(DagRun.logical_date < date).order_by(DagRun.logical_date.desc()).limit(1)
    after = of_dag.where(DagRun.logical_date > date).order_by(DagRun.logical_date).limit(1)
    said = []
    for query, side in ((before, "before"), (after, "after")):
        row = session.execute(query).first()
        if row is not None:
            span = spell_span(abs((row.logical_date - date).total_seconds()))
            said.append(f"the nearest {side} it is of {_spell(row.logical_date)} ({span} {side}), {row.state}")
    return ", and ".join(said) or "it has no run with a date"


def _spell(date: dt.datetime) -> str:
    return date.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
