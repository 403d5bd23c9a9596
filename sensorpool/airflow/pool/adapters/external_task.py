"""ExternalTaskSensor: its poke asks the task runner; the pool asks Airflow's database instead, once for all sensors.

The queries are those that the execution API runs for the native sensor (``task-instances/count``, ``…/states`` and
``dag-runs/count``); the answers are combined as the sensor does, mapped tasks included. Runs are read first and then
the tasks in them, so each statement reads one table by one of its indexes.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.exceptions import (
    ExternalDagFailedError,
    ExternalTaskFailedError,
    ExternalTaskGroupFailedError,
)
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.utils.session import create_session
from sqlalchemy import func, select, tuple_

from sensorpool.airflow.compat import server_process
from sensorpool.airflow.compat.exceptions import AirflowSkipException
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.queries import read_each, rows_of, text_of
from sensorpool.airflow.pool.adapters.task_groups import Group, tasks_of_groups

# the methods of its poke: a subclass with its own version of one is another sensor
OWN = (
    "poke",
    "_poke_af3",
    "_get_dttm_filter",
    "_get_logical_date",
    "_calculate_count",
    "_handle_failed_states",
    "_handle_skipped_states",
    "_check_for_existence",
    "get_count",
    "get_external_task_group_task_ids",
)
_STATES = ("allowed_states", "skipped_states", "failed_states")


def adapt(_: type[ExternalTaskSensor]) -> type["ExternalTasks"]:
    """Return what is poked in the place of ExternalTaskSensor."""
    server_process.become_server()
    return ExternalTasks


def poke_context_of(sensor: ExternalTaskSensor, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a sensor's condition depends on, as JSON; dates are ISO 8601 in UTC.

    ``check_existence`` is no part of it: in Airflow 3 the sensor's ``_poke_af3`` takes all tasks and DAGs to exist.

    :raises NotPoolable: with ``execution_date_fn``, for subclasses with a poke of their own, and for arguments that
        the execution API refuses or that no query can hold.
    """
    if sensor.execution_date_fn is not None:
        raise NotPoolable("its argument execution_date_fn is a callable")
    for name in OWN:
        if getattr(type(sensor), name) is not getattr(ExternalTaskSensor, name):
            raise NotPoolable(f"it brings a {name} of its own")
    task_ids = list(sensor.external_task_ids or ())
    if len(task_ids) > len(set(task_ids)):
        raise NotPoolable("it names an external task twice, which it refuses itself")
    if any(state is None for name in _STATES for state in getattr(sensor, name)):
        raise NotPoolable("the state None is among its states")
    try:
        # an empty group id counts as no group, as in _poke_af3
        group_id = None if task_ids or not sensor.external_task_group_id else text_of(sensor.external_task_group_id)
        dag_id, task_ids = text_of(sensor.external_dag_id), sorted(map(text_of, task_ids))
    except ValueError as error:
        raise NotPoolable(f"one of the external ids is {error}") from None
    return {
        "external_dag_id": dag_id,
        "external_task_ids": task_ids or None,
        "external_task_group_id": group_id,
        "logical_dates": sorted(date.astimezone(dt.UTC).isoformat() for date in sensor._get_dttm_filter(context)),
        **{name: sorted(map(str, getattr(sensor, name))) for name in _STATES},
        "soft_fail": bool(sensor.soft_fail),
    }


class ExternalTasks:
    """Answers all external tasks, task groups and DAG runs that the pool waits for."""

    @classmethod
    def poke_many(cls, contexts: Sequence[Mapping[str, Any]]) -> list[bool | Exception]:
        """Answer each context (`poke_context_of`): whether it landed, or the exception that the native sensor raises.

        :raises Exception: when Airflow's database does not answer.
        """
        read = read_each(Wait.read, contexts)
        waits = [wait for wait in read if isinstance(wait, Wait)]
        with create_session() as session:
            groups = tasks_of_groups({wait.group for wait in waits if wait.group}, session)
            runs = _runs({(wait.dag_id, date) for wait in waits for date in wait.dates}, session)
            states = _states(
                {
                    (wait.dag_id, task_id, run.run_id)
                    for wait in waits
                    for task_id in wait.tasks_of(groups)
                    for run in wait.runs_of(runs)
                },
                session,
            )
        return [wait.answer(groups, runs, states) if isinstance(wait, Wait) else wait for wait in read]


class Run(NamedTuple):
    """A run of a DAG."""

    run_id: str
    state: str | None


Groups = Mapping[Group, tuple[str, ...] | Exception]
Runs = Mapping[tuple[str, dt.datetime], list[Run]]  # by DAG and logical date
States = Mapping[tuple[str, str, str], Mapping[str | None, int]]  # by DAG, task and run: the number in each state


def _runs(keys: Iterable[tuple[str, dt.datetime]], session: Any) -> Runs:
    query = select(DagRun.dag_id, DagRun.logical_date, DagRun.run_id, DagRun.state)
    found: dict[tuple[str, dt.datetime], list[Run]] = defaultdict(list)
    for dag_id, date, run_id, state in rows_of(query, tuple_(DagRun.dag_id, DagRun.logical_date), keys, session):
        found[dag_id, date].append(Run(run_id, state))
    return found


def _states(keys: Iterable[tuple[str, str, str]], session: Any) -> States:
    key = (TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.run_id)
    query = select(*key, TaskInstance.state, func.count()).group_by(*key, TaskInstance.state)
    found: dict[tuple[str, str, str], dict[str | None, int]] = defaultdict(dict)
    for dag_id, task_id, run_id, state, number in rows_of(query, tuple_(*key), keys, session):
        found[dag_id, task_id, run_id][state] = number
    return found


@dataclass(frozen=True, slots=True)
class Wait:
    """One context, read: it waits for tasks, for a task group, or for a whole run."""

    dag_id: str
    task_ids: list[str]
    group: Group | None
    dates: list[dt.datetime]
    allowed: frozenset[str]
    skipped: frozenset[str]
    failed: frozenset[str]
    soft_fail: bool

    @classmethod
    def read(cls, context: Mapping[str, Any]) -> "Wait":
        """Read a context.

        :raises Exception: when it is not one of `poke_context_of`.
        """
        dag_id = text_of(context["external_dag_id"])
        task_ids = [text_of(task_id) for task_id in context["external_task_ids"] or ()]
        group_id = context["external_task_group_id"]
        dates = [dt.datetime.fromisoformat(date) for date in context["logical_dates"]]
        if any(date.tzinfo is None for date in dates):
            raise ValueError("a logical date has no offset")
        group = (dag_id, text_of(group_id)) if group_id and not task_ids else None
        allowed, skipped, failed = (frozenset(context[name]) for name in _STATES)
        return cls(dag_id, task_ids, group, dates, allowed, skipped, failed, bool(context["soft_fail"]))

    def tasks_of(self, groups: Groups) -> Sequence[str]:
        """Return the ids of the tasks to read."""
        tasks = groups[self.group] if self.group else self.task_ids
        return () if isinstance(tasks, Exception) else tasks

    def runs_of(self, runs: Runs) -> list[Run]:
        """Return the runs of its DAG at its dates."""
        return [run for date in self.dates for run in runs.get((self.dag_id, date), ())]

    def answer(self, groups: Groups, runs: Runs, states: States) -> bool | Exception:
        """Answer as ``ExternalTaskSensor.poke`` does: failed states go before skipped ones."""
        if self.group and isinstance(missing := groups[self.group], Exception):
            return missing

        def count(wanted: frozenset[str]) -> float:
            return self._count(wanted, self.tasks_of(groups), self.runs_of(runs), states)

        if self.failed and count(self.failed) > 0:
            return self._failed()
        if self.skipped and count(self.skipped) > 0:
            return self._skipped()
        return count(self.allowed) == len(self.dates)

    def _count(self, wanted: frozenset[str], tasks: Sequence[str], runs: Sequence[Run], states: States) -> float:
        """Count tasks or runs in these states, as ``_get_count`` and ``_calculate_count`` do."""
        if not tasks and not self.group:
            return sum(run.state in wanted for run in runs)
        by_run = [[states.get((self.dag_id, task, run.run_id), {}) for task in tasks] for run in runs]
        if self.group:
            # a run without any of its tasks does not count: _get_count_by_matched_states
            return sum(any(run) and all(state in wanted for task in run for state in task) for run in by_run)
        found = sum(number for run in by_run for task in run for state, number in task.items() if state in wanted)
        return found / len(self.task_ids)

    def _failed(self) -> Exception:
        kind: type[Exception]
        if self.task_ids:
            kind, what = ExternalTaskFailedError, f"{self._some_tasks()} failed."
        elif self.group:
            kind, what = ExternalTaskGroupFailedError, f"{self._the_group()} in DAG '{self.dag_id}' failed."
        else:
            kind, what = ExternalDagFailedError, f"The external DAG {self.dag_id} failed."
        return _skip(f"{what} Skipping due to soft_fail.") if self.soft_fail else kind(what)

    def _skipped(self) -> Exception:
        if self.task_ids:
            what = self._some_tasks()
        elif self.group:
            what = f"{self._the_group()} in DAG {self.dag_id}"
        else:
            what = f"The external DAG {self.dag_id}"
        return _skip(f"{what} reached a state in our states-to-skip-on list. Skipping.")

    def _some_tasks(self) -> str:
        return f"Some of the external tasks {self.task_ids} in DAG {self.dag_id}"

    def _the_group(self) -> str:
        return f"The external task_group '{self.group[1] if self.group else ''}'"


def _skip(why: str) -> Exception:
    error: Exception = AirflowSkipException(why)
    return error
