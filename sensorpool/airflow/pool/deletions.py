"""Which tasks Airflow's audit log knows as deleted, with their run or their DAG.

A task that has begun without a worker has no entry of its own in that log, so its deletion is all that tells it from a
task of another deployment. The log may have millions of rows, and is asked in each round for each task of another
deployment. So each question names the DAGs or the runs that it is about, which an index of the log begins with.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

WINDOW = 1_000  # names in one statement
_MOST = 10_000  # entries about many runs that are read
_SLACK = 60_000  # milliseconds between the clocks of two databases
_DAG = ("delete_dag", "cli_dag_delete")
_RUN = ("delete_dag_run",)
_MANY = ("bulk_dag_runs", "bulk_task_instances")
_ANY = "~"  # Airflow's name for any DAG, or any run

Key = tuple[str, str, str, int, int]  # dag_id, task_id, run_id, map_index, try_number


def among(session: Any, absent: Mapping[Key, int]) -> set[Key]:
    """Return those of some keys whose tasks were deleted.

    :param absent: keys of tasks that Airflow does not have, each with when it registered, in milliseconds since 1970.
    """
    if not absent:
        return set()
    dags, runs = sorted({key[0] for key in absent}), sorted({(key[0], key[2]) for key in absent})
    since = min(absent.values()) - _SLACK
    dags_at = _dags(session, dags, since)
    runs_at = _runs(session, runs, since)
    many_at = _many(session, [*dags, _ANY], since)
    return {key for key, began in absent.items() if began - _SLACK <= _deleted_at(key, dags_at, runs_at, many_at)}


def _deleted_at(key: Key, dags: Mapping[Any, int], runs: Mapping[Any, int], many: Mapping[Any, int]) -> int:
    """Return when a task was last deleted, in milliseconds since 1970; before that if it never was."""
    dag_id, task_id, run_id, map_index, _ = key
    of_tasks = [(dag_id, run_id, name, index) for name, index in ((None, None), (task_id, None), (task_id, map_index))]
    return max(dags.get(dag_id, -1), runs.get((dag_id, run_id), -1), *(many.get(each, -1) for each in of_tasks))


def _dags(session: Any, dag_ids: Sequence[str], since: int) -> dict[str, int]:
    """Return when each DAG was last deleted."""
    from airflow.models.log import Log
    from sqlalchemy import func, select

    found: dict[str, int] = {}
    for some in windows(dag_ids):
        query = select(Log.dag_id, func.max(Log.dttm)).where(Log.dag_id.in_(some), *_entries(_DAG, since))
        found |= {dag_id: _milliseconds(at) for dag_id, at in session.execute(query.group_by(Log.dag_id))}
    return found


def _runs(session: Any, runs: Sequence[tuple[str, str]], since: int) -> dict[tuple[str, str], int]:
    """Return when each run was last deleted."""
    from airflow.models.log import Log
    from sqlalchemy import func, select, tuple_

    place = (Log.dag_id, Log.run_id)
    found: dict[tuple[str, str], int] = {}
    for some in windows(runs):
        query = select(*place, func.max(Log.dttm)).where(tuple_(*place).in_(some), *_entries(_RUN, since))
        found |= {(dag_id, run_id): _milliseconds(at) for dag_id, run_id, at in session.execute(query.group_by(*place))}
    return found


def _many(session: Any, dag_ids: Sequence[str], since: int) -> dict[tuple[Any, Any, Any, Any], int]:
    """Return when runs and tasks were last deleted by requests that name many: DAG, run, task and map index.

    A request that names no tasks has None for them, one that names no map indexes has None for these.
    """
    from airflow.models.log import Log
    from sqlalchemy import select

    found: dict[tuple[Any, Any, Any, Any], int] = {}
    for some in windows(dag_ids):
        query = (
            select(Log.dttm, Log.dag_id, Log.run_id, Log.extra)
            .where(Log.dag_id.in_(some), *_entries(_MANY, since))
            .order_by((Log.id + 0).desc())  # by the id alone a database may walk the whole log
            .limit(_MOST)
        )
        for at, dag_id, run_id, extra in session.execute(query):
            for named in _named(dag_id, run_id, extra):
                found[named] = max(found.get(named, -1), _milliseconds(at))
    return found


def _entries(events: Collection[str], since: int) -> tuple[Any, ...]:
    """Return the conditions on entries that are about no single task."""
    from airflow.models.log import Log

    at = datetime.fromtimestamp(max(0, since) / 1000, UTC)
    return Log.task_id.is_(None), Log.event.in_(events), Log.dttm >= at


def _named(dag_id: Any, run_id: Any, extra: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield what a request deletes: DAG, run, task and map index.

    :param extra: its body, as Airflow keeps it.
    """
    try:
        body = json.loads(extra or "")
    except (TypeError, ValueError):
        return
    actions = body.get("actions") if isinstance(body, dict) else None
    for action in actions if isinstance(actions, list) else ():
        if not isinstance(action, dict) or action.get("action") != "delete":
            continue
        entities = action.get("entities")
        for entity in entities if isinstance(entities, list) else ():
            given = entity if isinstance(entity, dict) else {"dag_run_id" if run_id is None else "task_id": entity}
            parts = (
                given.get("dag_id") or dag_id,
                given.get("dag_run_id") or run_id,
                given.get("task_id"),
                given.get("map_index"),
            )
            if all(isinstance(part, str | int | None) for part in parts):
                yield parts


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def windows(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut a list into windows: a statement takes a limited number of parameters."""
    for start in range(0, len(items), WINDOW):
        yield items[start : start + WINDOW]
