"""Cancel instances whose task does not wait for them any more, by the word of Airflow's own database.

A mark or clear tells the triggerer, and that cancels at once (`trigger.PoolTrigger.on_kill`). While no triggerer runs
it tells nobody, and a worker that dies between registering and deferring never says so. So rescue asks Airflow: the id
of the try that an instance was registered for must still be a task instance that is under way.
"""

import importlib.util
from collections.abc import Collection
from uuid import UUID

from sensorpool.flush import call_off
from sensorpool.publish import deliver
from sensorpool.store import looking
from sensorpool.worker import Worker

YOUNG = 60_000  # milliseconds: such a task may not have got as far as deferring
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
        if waiting:
            under_way = _under_way(set(waiting.values()))
            gone = {instance_id: _REASON for instance_id, ti_id in waiting.items() if ti_id not in under_way}
            if gone:
                flushed = call_off(database, gone)
                deliver(database, worker.publisher, flushed)
                cancelled += len(flushed.settled)
        if last is None:
            return {"cancelled": cancelled}
        place = last


def _under_way(ti_ids: Collection[str]) -> set[str]:
    """Return those of these ids of tries that Airflow has under way."""
    from sensorpool.airflow import compat

    compat.become_server()
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(TaskInstance.id).where(
        TaskInstance.id.in_([UUID(ti_id) for ti_id in ti_ids]), TaskInstance.state.in_(_UNDER_WAY)
    )
    with create_session() as session:
        return {str(ti_id) for ti_id in session.execute(query).scalars()}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
