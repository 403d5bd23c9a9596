"""Cancel instances whose task does not wait for them any more, according to Airflow's own database.

A mark or clear reaches the triggerer, which cancels at once (`trigger.PoolTrigger.on_kill`) if Airflow tells it the
state of the task. While no triggerer runs it reaches no process, and a worker that dies between registering and
deferring reports nothing. So rescue asks Airflow: the try that an instance was registered for must still be a task
instance under way. A try without a task instance was deleted, alone or with its run or its DAG, if Airflow's audit log
says that it ran, or that it was deleted. A try that Airflow does not know belongs to another deployment.
"""

import importlib.util
from collections.abc import Collection
from typing import Any
from uuid import UUID

from sensorpool.airflow.pool import deletions
from sensorpool.store import inspecting
from sensorpool.worker.chores.round import Round

YOUNG = 2_000  # milliseconds
WINDOW = 1_000  # groups in one statement
_UNDER_WAY = ("deferred", "running", "queued", "scheduled", "restarting")
_REASON = "its task does not wait any more in Airflow"


def reconcile(now: Round) -> dict[str, int]:
    """Do one round: the entry point ``sensorpool.rescuers``.

    :raises Exception: when Airflow's database does not answer.
    """
    if importlib.util.find_spec("airflow") is None:
        return {}
    database, place, cancelled = now.database, 0, 0
    before = database.read(database.now) - YOUNG
    while True:
        rows, last = database.read(inspecting.external_waiters, place, WINDOW, before)
        waiting = [row for row in rows if _is_uuid(row.external_id)]
        gone = _gone(waiting) if waiting else set()
        if gone:
            reasons = {row.id: _REASON for row in waiting if str(UUID(row.external_id)) in gone}
            # handed back, not just cancelled: a task that waits after all goes on natively
            cancelled += now.settler.hand_back(reasons)
        if last is None:
            return {"cancelled": cancelled}
        place = last


def _gone(waiting: Collection[Any]) -> set[str]:
    """Return the ids of those tries of these rows that Airflow had under way and has no more."""
    from sensorpool.airflow.compat import server_process

    server_process.become_server()
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select, tuple_

    from sensorpool.airflow.compat import task_tries

    tries = {
        str(UUID(row.external_id)): (row.dag_id, row.task_id, row.run_id, row.map_index, row.try_number)
        for row in waiting
    }
    ids = [UUID(ti_id) for ti_id in tries]
    states: dict[str, Any] = {}
    past: set[str] = set()
    with create_session() as session:
        for some in deletions.windows(ids):
            states |= task_tries.current(session, some)
            past |= task_tries.earlier(session, some)
        ended = past | {ti_id for ti_id, state in states.items() if state not in _UNDER_WAY}
        absent = {key: ti_id for ti_id, key in tries.items() if ti_id not in states and ti_id not in past}
        place = (Log.dag_id, Log.task_id, Log.run_id, Log.map_index, Log.try_number)
        for some in deletions.windows(list(absent)):
            found = session.execute(select(*place).where(tuple_(*place).in_(some)).distinct())
            ended |= {absent[tuple(row)] for row in found if tuple(row) in absent}
        began = {str(UUID(row.external_id)): row.start_date for row in waiting}
        unknown = {key: began[ti_id] for key, ti_id in absent.items() if ti_id not in ended}
        ended |= {absent[key] for key in deletions.among(session, unknown)}
    return ended


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
