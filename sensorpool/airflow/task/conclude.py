"""How a task ends that resumes on a worker: as the native sensor would have ended, by Airflow's own code.

The task enters the sensor's own ``execute`` again (`sensor_task.resume`); where that arrives at BaseSensorOperator's,
what the pool saw is returned or raised. So callbacks, emails, retries, outlets and listeners are Airflow's.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, landed, raised
from sensorpool.airflow.task.handed_back import go_on
from sensorpool.airflow.task.patch import SET_ASIDE
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Ending, State
from sensorpool.store import results

ATTEMPTS, PAUSE = 12, 5.0  # at reading a value; seconds between them


def _set_aside(sensor: Any, *names: str) -> None:
    """Keep flags from BaseSensorOperator.resume_execution; a task has them again once that has returned."""
    kept = vars(sensor).setdefault(SET_ASIDE, {})
    for name in names:
        kept[name] = getattr(sensor, name)
        setattr(sensor, name, False)


def what_was_seen(sensor: Any, context: Any, event: Any) -> InstanceResult:
    """Read an event; where there is a value for XCom, read that from the pool's database.

    Where that does not answer the task has landed all the same, without a value (`landed`). Where it does not know the
    instance the task runs natively.
    """

    def fetch(instance_id: int) -> InstanceResult:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _settled(instance_id, context)
            except Unreachable as error:
                sensor.log.warning("sensorpool: the XCom value cannot be had yet: %s", one_line(error))
                if attempt < ATTEMPTS:
                    time.sleep(PAUSE)
            except Exception as error:
                return InstanceResult.handed_back(f"its XCom value cannot be had: {one_line(error)}")
        why = "cannot be had: the pool's database does not answer"
        return InstanceResult(State.SUCCESS, Ending.LANDED, xcom_value=landed.without_value(why))

    return InstanceResult.read(event, fetch)


def _settled(instance_id: int, context: Any) -> InstanceResult:
    """Read how an instance ended that has a value, and the value.

    :raises Unreachable: when the database does not answer.
    :raises LookupError: when the instance is not there, or is another task's: the database was put back, perhaps.
    """
    for found in deferral.pool().database.read(results.read, [instance_id]):
        if found.key == deferral.key_of(context["ti"]) and found.xcom_value is not None:
            return InstanceResult(found.state, found.ending, found.reason, json.loads(found.xcom_value))
    raise LookupError(f"the pool has no value of instance {instance_id} of this task any more")


def conclude(
    sensor: Any,
    context: Any,
    result: InstanceResult,
    started: float,
    native: Callable[[Any, Any], Any],
    lost: Exception | None = None,
) -> Any:
    """Return or raise what BaseSensorOperator.execute would have.

    :param started: when the task began to wait, in seconds since 1970.
    :param lost: why the task cannot go on natively, if it cannot (`as_started.put_back`).
    :raises AirflowSensorTimeout: at a sensor's timeout: Airflow does not retry it.
    :raises AirflowTaskTimeout: at the execution_timeout: it does.
    :raises BaseException: for an error of the poke: of the class that it raised (`raised`). It does.
    :raises AirflowFailException: when the poke asked to fail, or the instance was cancelled.
    :raises AirflowSkipException: when the poke asked to skip, or under soft_fail and never_fail.
    """
    waited = time.time() - started
    needed = ""
    if result.state is State.SUCCESS:
        value, needed = landed.take(sensor, context, result.xcom_value)
        if not needed:
            _set_aside(sensor, "soft_fail", "never_fail")
            sensor.log.info("Success criteria met. Exiting.")
            return value
    if needed or result.ending is Ending.HANDED_BACK:
        if lost is not None:
            _set_aside(sensor, "soft_fail")  # that is for timeouts: nothing may be skipped for want of an attribute
            raise lost
        go = partial(landed.poke_again, needed) if needed else go_on
        if not needed:
            sensor.log.info("sensorpool: handed back, runs natively from here: %s", result.reason)
        try:
            return go(sensor, context, native, started)
        finally:
            # it has applied them; resume_execution would apply them to an AirflowRescheduleException too
            _set_aside(sensor, "soft_fail", "never_fail")
    # the pool has applied them; BaseSensorOperator.resume_execution would apply them to what it did not natively
    _set_aside(sensor, "soft_fail", "never_fail")
    reason = result.reason or str(result.ending)
    if result.state is State.SKIPPED:
        raise raised.skip_of(reason) if result.ending is Ending.SKIP else AirflowSkipException(reason)
    match result.ending:
        case Ending.TIMEOUT:
            raise AirflowSensorTimeout(
                f"Sensor has timed out; run duration of {waited} seconds exceeds "
                f"the specified timeout of {sensor.timeout}. ({reason})"
            )
        case Ending.EXECUTION_TIMEOUT:  # the task runner calls on_kill where it sees that
            raise AirflowTaskTimeout(reason)
        case Ending.FAIL:
            raise raised.failure_of(reason)
        case Ending.CANCELLED:
            raise AirflowFailException(reason)
        case _:
            raise raised.error_of(reason)
