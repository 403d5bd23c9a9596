"""A sensor whose trigger Airflow has given up: it ends or goes on as the native sensor, which has no trigger.

Airflow gives a trigger up when its time is over, or when a triggerer can neither make nor run it. Then it resumes the
task with an error, in the place of the resume method and its arguments.
"""

import datetime as dt
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sensorpool.airflow.compat.exceptions import AirflowRescheduleException, AirflowTaskTimeout
from sensorpool.airflow.compat.operators import TRIGGER_TIMEOUT
from sensorpool.airflow.proof import own_execute
from sensorpool.airflow.result import TRIGGER_FAILED, InstanceResult
from sensorpool.airflow.task import begun_without_worker, deferral, native_continuation, sensor_task
from sensorpool.airflow.task.patch import begins_on_worker
from sensorpool.instrumentation.redaction import error_text
from sensorpool.model.states import State
from sensorpool.store import inspecting

_UNKNOWN: tuple[str, str] = ("", "")


def resume(sensor: Any, context: Any, given: Any, native: Callable[[], Any]) -> Any:
    """Stand in for BaseSensorOperator.resume_execution where Airflow has given up a trigger.

    :param given: what Airflow says of the trigger: an ``error``, and perhaps a ``traceback``.
    :param native: Airflow's own way to end the task: an error.
    :raises AirflowTaskTimeout: when its execution_timeout is over, which Airflow retries.
    :raises BaseException: whatever its native execution raises.
    """
    if own_execute.continues_after_wait(type(sensor)):
        return native()  # the trigger may be one of its own
    known, is_read = _known(sensor, context)
    if known is None and begins_on_worker.get((sensor.dag_id, sensor.task_id), _UNKNOWN) is not None:
        return native()  # it begins on a worker, and has not come to the pool
    if getattr(sensor, "deferrable", False) is True and (known is None or known.state == State.CANCELLED):
        return native()  # it is not in the pool, so the trigger is one of its own
    said = given if isinstance(given, dict) else {}
    error = str(said.get("error"))
    result = None if known is None else InstanceResult.of(known)
    if result is None or result.state in (State.SENSING, State.CANCELLED):
        if TRIGGER_TIMEOUT in (error, said.get("error")):
            if known is None and is_read and native_continuation.read_kept_start(sensor, context) is None:
                return begun_without_worker.start_late(sensor, context)
            if (limit := _execution_timeout(sensor)) is None:
                return native()
            raise AirflowTaskTimeout(f"it has waited for its execution_timeout of {limit:g} s")
        sensor.log.warning("Trigger failed: %s\n%s", error, "\n".join(map(str, said.get("traceback") or ())))
        result = InstanceResult.handed_back(TRIGGER_FAILED)
        _leave(known)
    started = _started(sensor, context, known)
    try:
        return sensor_task.resume(sensor, context, result.as_payload(), started=started)
    except AirflowRescheduleException as rescheduled:
        # where it begins without a worker it comes to its trigger again, which must not resume it at once
        with suppress(Exception):  # a wrong setting
            later = deferral.next_poke_at(rescheduled.reschedule_date)
            rescheduled.reschedule_date = dt.datetime.fromtimestamp(later, dt.UTC)
        raise


def _known(sensor: Any, context: Any) -> tuple[Any, bool]:
    """Return the instance of this try in the pool (a row of `inspecting.waiters`), and whether it could be read.

    The instance is None if there is none.
    """
    try:
        database, ti = deferral.pool().database, context["ti"]
        found = database.read(inspecting.of_key, deferral.key_of(ti))
        if found is None or found.external_id != str(ti.id):
            return None, True
        return database.read(inspecting.waiters, [found.id])[0], True
    except Exception as error:
        sensor.log.warning("sensorpool: what it waited for cannot be read: %s", error_text(error))
        return None, False


def _execution_timeout(sensor: Any) -> float | None:
    """Return the seconds of an execution_timeout that ends a sensor before its timeout does; None without one."""
    if sensor.reschedule or sensor.execution_timeout is None or getattr(sensor, "deferrable", False) is True:
        return None  # of a deferrable sensor it counts no time in a trigger
    seconds: float = sensor.execution_timeout.total_seconds()
    return seconds if seconds < sensor.timeout else None


def _leave(known: Any) -> None:
    """Have the pool poke no more for a task that goes on natively; if that fails, its instance times out there."""
    if known is not None:
        with suppress(Exception):
            deferral.pool().settler.hand_back({known.id: TRIGGER_FAILED})


def _started(sensor: Any, context: Any, known: Any) -> float:
    kept = native_continuation.read_kept_start(sensor, context) if sensor.reschedule else None
    if kept is not None:
        return kept
    return time.time() if known is None else float(known.start_date) / 1000
