"""Which tasks Airflow's audit log knows as deleted, with their run or their DAG.

A task that has begun without a worker has no entry of its own in that log, so its deletion is all that tells it from a
task of another deployment.
"""

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

_MOST = 10_000  # entries that are read
_SLACK = 60_000  # milliseconds between the clocks of two databases
_DAG = frozenset({"delete_dag", "cli_dag_delete"})
_RUN = "delete_dag_run"
_MANY = frozenset({"bulk_dag_runs", "bulk_task_instances"})

Key = tuple[str, str, str, int, int]  # dag_id, task_id, run_id, map_index, try_number


def among(session: Any, absent: Collection[Key], since: int) -> set[Key]:
    """Return those of some keys whose tasks were deleted.

    :param absent: keys of tasks that Airflow does not have.
    :param since: when the first of them registered, in milliseconds since 1970.
    """
    from airflow.models.log import Log
    from sqlalchemy import select

    if not absent:
        return set()
    query = (
        select(Log.event, Log.dag_id, Log.run_id, Log.extra)
        .where(Log.event.in_(_DAG | _MANY | {_RUN}), Log.dttm >= datetime.fromtimestamp((since - _SLACK) / 1000, UTC))
        .order_by(Log.id.desc())
        .limit(_MOST)
    )
    dags: set[str] = set()
    runs: set[tuple[str, str]] = set()
    many: list[str] = []
    for event, dag_id, run_id, extra in session.execute(query):
        if event in _DAG:
            dags.add(dag_id)
        elif event == _RUN:
            runs.add((dag_id, run_id))
        else:
            many.append(f"{json.dumps(dag_id)} {json.dumps(run_id)} {extra or ''}")
    return {
        key
        for key in absent
        if key[0] in dags
        or (key[0], key[2]) in runs
        or any(json.dumps(key[2]) in said and json.dumps(key[0]) in said for said in many)
    }
