"""A sensor that was to start without a worker (`sensorpool.airflow.start`), on its worker: what its event says."""

from typing import Any

from sensorpool.airflow.result import START_ON_WORKER, STARTED
from sensorpool.airflow.task import saved_attributes
from sensorpool.airflow.task.conclude import set_aside


def reason_to_start(event: Any) -> str | None:
    """Return why a sensor has to start here, at the begin of its ``execute``; None if it has waited in the pool."""
    why = event.get(START_ON_WORKER) if isinstance(event, dict) else None
    return None if why is None else str(why)


def start(sensor: Any, context: Any) -> Any:
    """Start a sensor as if Airflow had given it to this worker at once.

    :raises BaseException: whatever its ``execute`` raises.
    """
    try:
        return sensor.execute(context)
    finally:
        # its execute has applied them; BaseSensorOperator.resume_execution would apply them once more, to other errors
        set_aside(sensor, "soft_fail", "never_fail")


def start_of(event: Any) -> tuple[float, Any]:
    """Return when a sensor began to wait without a worker (seconds since 1970), and its saved attributes."""
    if not isinstance(event, dict) or not isinstance(event.get(STARTED), float):
        return 0.0, None
    return event[STARTED], event.get(saved_attributes.NAME)
