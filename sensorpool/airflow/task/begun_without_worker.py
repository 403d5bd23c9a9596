"""A sensor that began without a worker (`sensorpool.airflow.start`), on a worker: what its event says.

Airflow's scheduler hands such a task to its trigger again, in the same try, whenever Airflow reschedules it; and it
fails a try whose second start on a worker comes within seconds of the first ("state mismatch"). So where Airflow's
own code would reschedule the task, the task is deferred instead.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.compat.exceptions import AirflowRescheduleException, TaskDeferred
from sensorpool.airflow.errors import reason_to_begin
from sensorpool.airflow.result import START_ON_WORKER, START_ON_WORKER_KIND, STARTED
from sensorpool.airflow.task import deferral, reschedule_condition, reschedule_limits, saved_attributes
from sensorpool.airflow.task.conclude import set_aside
from sensorpool.airflow.task.patch import RESUME
from sensorpool.instrumentation.redaction import error_text

BEGUN = "begun"  # an argument of the resume method: whether the try began without a worker
_SAVED = (saved_attributes.NAME, reschedule_condition.NAME, reschedule_limits.NAME)


def reason_to_start(event: Any) -> str | None:
    """Return why a sensor has to start here, at the begin of its ``execute``; None if it has waited in the pool."""
    why = event.get(START_ON_WORKER) if isinstance(event, dict) else None
    return None if why is None else str(why)


def start(sensor: Any, context: Any, event: Any) -> Any:
    """Start a sensor as if Airflow had given it to this worker at once.

    :raises BaseException: whatever its ``execute`` raises.
    """
    task_runtime.count_metric("begins_on_worker", {"reason": reason_to_begin(event.get(START_ON_WORKER_KIND))})
    try:
        with defer_reschedules(sensor, start_of(event) or time.time()):
            return sensor.execute(context)
    finally:
        # its execute has applied them; BaseSensorOperator.resume_execution would apply them once more, to other errors
        set_aside(sensor, "soft_fail", "never_fail")


def start_late(sensor: Any, context: Any) -> Any:
    """Start a sensor whose time was over before a triggerer took it up: no poke was made, and its limits begin here.

    :raises BaseException: whatever its ``execute`` raises.
    """
    sensor.log.warning("sensorpool: starts on this worker: no triggerer has taken it up in its time")
    return start(sensor, context, {START_ON_WORKER_KIND: "pool"})


def start_of(event: Any) -> float:
    """Return when a sensor began to wait without a worker, in seconds since 1970; 0.0 if it did not."""
    started = event.get(STARTED) if isinstance(event, dict) else None
    return started if isinstance(started, float) else 0.0


def saved_in(event: Any) -> dict[str, Any]:
    """Return the arguments of the resume method that a sensor has taken along in its trigger's event."""
    if not start_of(event):
        return {}
    return {name: event[name] for name in _SAVED if name in event}


@contextmanager
def defer_reschedules(sensor: Any, started: float) -> Iterator[None]:
    """Defer a sensor where Airflow would reschedule it.

    :param started: when it began to wait, in seconds since 1970.
    """
    try:
        yield
    except AirflowRescheduleException as rescheduled:
        try:
            pause = deferral.pause(sensor, rescheduled.reschedule_date, started, **{BEGUN: True})
        except Exception as error:  # a wrong setting
            sensor.log.warning("sensorpool: Airflow reschedules it: %s", error_text(error))
            raise rescheduled from None
        raise pause from None
    except TaskDeferred as deferred:
        if deferred.method_name == RESUME:
            deferred.kwargs = {**(deferred.kwargs or {}), BEGUN: True}
        raise
