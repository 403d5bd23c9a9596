"""How a task ends that resumes on a worker: as the native sensor would have ended, by Airflow's own code.

The task enters the sensor's own ``execute`` again (`sensor_task.resume`); where that arrives at BaseSensorOperator's,
what the pool saw is returned or raised. So callbacks, emails, retries, outlets and listeners are Airflow's.
"""

import time
from collections.abc import Callable
from typing import Any

from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from sensorpool.airflow.codec import decode
from sensorpool.airflow.saw import Saw
from sensorpool.states import Ending, State


class PokeFailed(Exception):
    """A poke in the pool raised this.

    Not an AirflowException: under soft_fail those become skips when a task resumes.
    """


def conclude(sensor: Any, context: Any, saw: Saw, started: float, native: Callable[[Any, Any], Any]) -> Any:
    """Return or raise what BaseSensorOperator.execute would have.

    :param started: when the task began to wait, in seconds since 1970.
    :raises AirflowSensorTimeout: at a sensor's timeout: Airflow does not retry it.
    :raises AirflowTaskTimeout: at the execution_timeout: it does.
    :raises PokeFailed: for an error of the poke: it does.
    :raises AirflowFailException: when the poke asked to fail, or somebody cancelled the instance.
    :raises AirflowSkipException: when the poke asked to skip, or under soft_fail and never_fail.
    """
    waited = time.time() - started
    if saw.ending is Ending.HANDED_BACK:
        sensor.log.info("sensorpool: handed back, runs natively from here: %s", saw.reason)
        if not (sensor.reschedule and context["ti"].get_first_reschedule_date(context)):  # Airflow counts from there
            sensor.timeout = max(0.0, sensor.timeout - waited)
        try:
            return native(sensor, context)
        finally:
            # it has applied them; resume_execution would apply them to an AirflowRescheduleException too
            sensor.soft_fail = sensor.never_fail = False
    # the pool has applied them; BaseSensorOperator.resume_execution would apply them to what it did not natively
    sensor.soft_fail = sensor.never_fail = False
    if saw.state is State.SUCCESS:
        sensor.log.info("Success criteria met. Exiting.")
        return decode(saw.xcom_value)
    reason = saw.reason or str(saw.ending)
    if saw.state is State.SKIPPED:
        raise AirflowSkipException(reason)
    match saw.ending:
        case Ending.TIMEOUT:
            raise AirflowSensorTimeout(
                f"Sensor has timed out; run duration of {waited} seconds exceeds "
                f"the specified timeout of {sensor.timeout}. ({reason})"
            )
        case Ending.EXECUTION_TIMEOUT:
            sensor.on_kill()  # as Airflow does where it enforces it
            raise AirflowTaskTimeout(reason)
        case Ending.FAIL | Ending.CANCELLED:
            raise AirflowFailException(reason)
        case _:
            raise PokeFailed(reason)
