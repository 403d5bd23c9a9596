"""Cancel instances whose task does not wait for them any more, by the word of Airflow's own database.

A mark or clear tells the triggerer, and that cancels at once (`trigger.PoolTrigger.on_kill`). While no triggerer runs
it tells nobody, and a worker that dies between registering and deferring never says so. So rescue asks Airflow: the id
of the try that an instance was registered for must still be a task instance that is under way.
"""

import importlib.util
from collections.abc import Collection
from typing import Any
from uuid import UUID

from sensorpool.flush import call_off
from sensorpool.publish import deliver
from sensorpool.states import Ending
from sensorpool.store import looking
from sensorpool.worker import Worker

YOUNG = 2_000  # milliseconds
WINDOW = 1_000  # groups in one statement
_UNDER_WAY = ("deferred", "running", "queued", "scheduled", "restarting")
_REASON = "its task does not wait any more in Airflow"


def reconcile(worker: Worker) -> dict[str, int]:
    """Do one round: the entry point ``sensorpool.rescuers``.

    :raises Exception: when Airflow's database cannot be asked.
    """
    if importlib.util.find_spec("airflow") is None:
        return {}
    database, place, cancelled = worker.database, 0, 0
    before = database.read(database.now) - YOUNG
    while True:
        rows, last = database.read(lambda c, at=place: looking.external_waiters(c, at, WINDOW, before))  # type: ignore[misc]
        waiting = {row.id: row.external_id for row in rows if _is_uuid(row.external_id)}
        gone = _gone(set(waiting.values())) if waiting else set()
        if gone:
            reasons = {one: _REASON for one, ti_id in waiting.items() if ti_id in gone}
            # handed back, not just cancelled: should a task wait after all, it goes on by itself
            flushed = call_off(database, reasons, Ending.HANDED_BACK)
            deliver(database, worker.publisher, flushed)
            cancelled += len(flushed.settled)
        if last is None:
            return {"cancelled": cancelled}
        place = last


def _gone(ti_ids: Collection[str]) -> set[str]:
    """Return those of these ids of tries that Airflow does not have under way any more."""
    from sensorpool.airflow import compat

    compat.become_server()
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ids = [UUID(ti_id) for ti_id in ti_ids]
    states: dict[str, Any] = {}
    past: set[str] = set()
    with create_session() as session:
        for start in range(0, len(ids), WINDOW):  # a statement takes so many parameters, and no more
            some = ids[start : start + WINDOW]
            rows = session.execute(select(TaskInstance.id, TaskInstance.state).where(TaskInstance.id.in_(some)))
            states |= {str(ti_id): state for ti_id, state in rows}
            earlier = session.execute(
                select(TaskInstanceHistory.task_instance_id).where(TaskInstanceHistory.task_instance_id.in_(some))
            )
            past |= {str(ti_id) for ti_id in earlier.scalars()}
    if not states and not past:
        return set()  # a database that knows none of them is not theirs
    return {ti_id for ti_id in ti_ids if states.get(ti_id) not in _UNDER_WAY}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
