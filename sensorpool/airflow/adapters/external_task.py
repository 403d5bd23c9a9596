"""ExternalTaskSensor: its poke asks the task runner, so the pool asks Airflow's database instead, once for all of them.

The questions are those that the execution API answers to the native sensor (``task-instances/count``, ``…/states`` and
``dag-runs/count``); what is made of the answers is the sensor's own arithmetic, mapped tasks and all.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.exceptions import (
    ExternalDagFailedError,
    ExternalTaskFailedError,
    ExternalTaskGroupFailedError,
)
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.sdk.exceptions import AirflowSkipException
from airflow.utils.session import create_session
from sqlalchemy import func, select, tuple_

from sensorpool.airflow import compat
from sensorpool.airflow.refusal import NotPoolable

AT_ONCE = 500  # values in one statement
_OWN = ("poke", "_poke_af3", "_calculate_count", "_handle_failed_states", "_handle_skipped_states")


def adapt(_: type[ExternalTaskSensor]) -> type["ExternalTasks"]:
    """Return what is poked in the place of ExternalTaskSensor."""
    compat.become_server()
    return ExternalTasks


def poke_context_of(sensor: ExternalTaskSensor, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a sensor's condition depends on, as JSON.

    :raises NotPoolable: with ``execution_date_fn``, and for subclasses that poke in their own way.
    """
    if sensor.execution_date_fn is not None:
        raise NotPoolable("its argument execution_date_fn is a callable")
    for name in _OWN:
        if getattr(type(sensor), name) is not getattr(ExternalTaskSensor, name):
            raise NotPoolable(f"it brings a {name} of its own")
    dates = sensor._get_dttm_filter(context)
    task_ids = sensor.external_task_ids
    if task_ids and len(task_ids) > len(set(task_ids)):
        raise NotPoolable("it names an external task twice, which it refuses itself")
    return {
        "external_dag_id": sensor.external_dag_id,
        "external_task_ids": sorted(task_ids) if task_ids else None,
        "external_task_group_id": sensor.external_task_group_id,
        "logical_dates": sorted(date.astimezone(dt.UTC).isoformat() for date in dates),
        "allowed_states": sorted(map(str, sensor.allowed_states)),
        "skipped_states": sorted(map(str, sensor.skipped_states)),
        "failed_states": sorted(map(str, sensor.failed_states)),
        "soft_fail": bool(sensor.soft_fail),
    }


class ExternalTasks:
    """Answers all external tasks, task groups and DAG runs that the pool waits for."""

    @classmethod
    def poke_many(cls, contexts: Sequence[Mapping[str, Any]]) -> list[bool | Exception]:
        """Answer each context: whether it landed, or the exception that the native sensor raises.

        :raises Exception: when Airflow's database does not answer.
        """
        waits = [_Wait(context) for context in contexts]
        with create_session() as session:
            tasks_of_groups = {
                group: _tasks_of_group(*group, session) for group in {one.group for one in waits if one.group}
            }
            for one in waits:
                if one.group:
                    one.tasks = tasks_of_groups[one.group]
            states = _states_of_tasks({part for one in waits for part in one.parts()}, session)
            states |= _states_of_runs({part for one in waits for part in one.runs()}, session)
        return [one.answer(states) for one in waits]


class _Wait:
    """One context, read."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self.dag_id: str = context["external_dag_id"]
        self.task_ids: list[str] = context["external_task_ids"] or []
        group_id = None if self.task_ids else context["external_task_group_id"]
        self.group = None if group_id is None else (self.dag_id, group_id)
        self.tasks: Sequence[str] | None = self.task_ids  # None: there is no such group
        self._dates = [dt.datetime.fromisoformat(date) for date in context["logical_dates"]]
        self._context = context

    def parts(self) -> list[tuple[str, str, dt.datetime]]:
        """Return the tasks to ask for: DAG, task and logical date."""
        return [(self.dag_id, task, date) for task in self.tasks or () for date in self._dates]

    def runs(self) -> list[tuple[str, dt.datetime]]:
        """Return the runs to ask for, where the whole DAG is waited for."""
        return [] if self.task_ids or self.group else [(self.dag_id, date) for date in self._dates]

    def answer(self, states: "States") -> bool | Exception:
        """Do as ``ExternalTaskSensor.poke`` does."""
        if self.group and self.tasks is None:
            return LookupError(f"Task group {self.group[1]} not found in DAG {self.dag_id}")
        if self._context["failed_states"] and self._count("failed_states", states) > 0:
            return self._failed()
        if self._context["skipped_states"] and self._count("skipped_states", states) > 0:
            return _skip(f"{self._what()} reached a state in our states-to-skip-on list. Skipping.")
        return self._count("allowed_states", states) == len(self._dates)

    def _count(self, which: str, states: "States") -> float:
        """Count what is in these states, normalised as the sensor does."""
        wanted = self._context[which]
        parts: Sequence[tuple[Any, ...]] = self.parts() or self.runs()
        found = [row for part in parts for row in states.get(part, ())]
        if not self.group:
            return sum(row.number for row in found if row.state in wanted) / max(1, len(self.task_ids))
        by_run: dict[str, bool] = {}
        for row in found:
            by_run[row.run_id] = by_run.get(row.run_id, True) and row.state in wanted
        return sum(by_run.values())

    def _failed(self) -> Exception:
        kind: type[Exception] = ExternalDagFailedError
        if self._context["soft_fail"]:
            return _skip(f"{self._what()} failed. Skipping due to soft_fail.")
        if self.task_ids:
            kind = ExternalTaskFailedError
        elif self.group:
            kind = ExternalTaskGroupFailedError
        return kind(f"{self._what()} failed.")

    def _what(self) -> str:
        if self.task_ids:
            return f"Some of the external tasks {self.task_ids} in DAG {self.dag_id}"
        if self.group:
            return f"The external task_group '{self.group[1]}' in DAG '{self.dag_id}'"
        return f"The external DAG {self.dag_id}"


def _skip(why: str) -> Exception:
    error: Exception = AirflowSkipException(why)
    return error


class _Row(NamedTuple):
    """So many of one task, or one run, are in a state."""

    run_id: str
    state: str | None
    number: int


States = dict[tuple[Any, ...], list[_Row]]


def _states_of_tasks(parts: Iterable[tuple[str, str, dt.datetime]], session: Any) -> States:
    key = (TaskInstance.dag_id, TaskInstance.task_id, DagRun.logical_date)
    columns = (*key, TaskInstance.run_id, TaskInstance.state)
    same_run = (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id)
    query = select(*columns, func.count()).join(DagRun, same_run).group_by(*columns)
    return _ask(query, key, parts, session)


def _states_of_runs(parts: Iterable[tuple[str, dt.datetime]], session: Any) -> States:
    key = (DagRun.dag_id, DagRun.logical_date)
    columns = (*key, DagRun.run_id, DagRun.state)
    return _ask(select(*columns, func.count()).group_by(*columns), key, parts, session)


def _ask(query: Any, key: tuple[Any, ...], parts: Iterable[tuple[Any, ...]], session: Any) -> States:
    """Ask for some at a time."""
    found: States = defaultdict(list)
    waiting = iter(parts)
    while some := list(islice(waiting, AT_ONCE)):
        for row in session.execute(query.where(tuple_(*key).in_(some))):
            found[tuple(row[: len(key)])].append(_Row(row[-3], row[-2], row[-1]))
    return found


def _tasks_of_group(dag_id: str, group_id: str, session: Any) -> list[str] | None:
    """Return the tasks of a group in the latest version of a DAG; None if it is not there."""
    dag = _dags().get_latest_version_of_dag(dag_id, session=session)
    group = None if dag is None else dag.task_group_dict.get(group_id)
    return None if group is None else [task.task_id for task in group.iter_tasks()]


@cache
def _dags() -> DBDagBag:
    return DBDagBag()
