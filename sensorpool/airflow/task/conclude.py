"""The end of a task that resumes on a worker: as the native sensor would have ended, by Airflow's own code.

The task enters the sensor's own ``execute`` again (`sensor_task.resume`). When that calls BaseSensorOperator's, the
pool's result is returned or raised. So callbacks, emails, retries, outlets and listeners are Airflow's.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sensorpool.airflow.compat.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from sensorpool.airflow.result import NEXT_POKE, TRIGGER_FAILED, InstanceResult
from sensorpool.airflow.task import class_proof, deferral, landing, own_deferral, poke_errors
from sensorpool.airflow.task.native_continuation import continue_natively
from sensorpool.airflow.task.patch import SET_ASIDE
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Ending, State
from sensorpool.store import results

ATTEMPTS, PAUSE = 12, 5.0  # at reading a value; seconds between them


def set_aside(sensor: Any, *names: str) -> None:
    """Hide flags from BaseSensorOperator.resume_execution; the task has them again after its return."""
    kept = vars(sensor).setdefault(SET_ASIDE, {})
    for name in names:
        kept[name] = getattr(sensor, name)
        setattr(sensor, name, False)


def read_result(sensor: Any, context: Any, event: Any) -> InstanceResult:
    """Read an event, and the value for XCom from the pool's database if there is one.

    If the database does not answer, the task has landed all the same, without a value (`landing`). If it does not know
    the instance, the task runs natively.
    """

    def fetch(instance_id: int) -> InstanceResult:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _settled(instance_id, context)
            except Unreachable as error:
                sensor.log.warning("sensorpool: the XCom value cannot be read yet: %s", one_line(error))
                if attempt < ATTEMPTS:
                    time.sleep(PAUSE)
            except Exception as error:
                return InstanceResult.handed_back(f"its XCom value cannot be read: {one_line(error)}")
        why = "cannot be read: the pool's database does not answer"
        return InstanceResult(State.SUCCESS, Ending.LANDED, xcom_value=landing.landing_without_value(why))

    return InstanceResult.read(event, fetch)


def _settled(instance_id: int, context: Any) -> InstanceResult:
    """Read the result of an instance that has a value, with the value.

    :raises Unreachable: when the database does not answer.
    :raises LookupError: when there is no such instance of this task: a backup may have been restored.
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
    confirm: Callable[[Any, Any, Any, float], Any] | None = None,
    handed_back: Callable[[Any, Any, Any, float], Any] = continue_natively,
) -> Any:
    """Return or raise what BaseSensorOperator.execute would have.

    :param started: when the task began to wait, in seconds since 1970.
    :param lost: the error of a task that cannot go on natively (`saved_attributes.restore`).
    :param confirm: runs the poke of a task that has waited at a gate; None where the pool's result counts.
    :param handed_back: runs a task that the pool has handed back.
    :raises AirflowSensorTimeout: at a sensor's timeout, which Airflow does not retry.
    :raises AirflowTaskTimeout: at the execution_timeout, which Airflow retries.
    :raises BaseException: for an error of the poke, of the class that it raised (`poke_errors`); Airflow retries it.
    :raises AirflowFailException: when the poke asked to fail, or the instance was cancelled.
    :raises AirflowSkipException: when the poke asked to skip, or under soft_fail and never_fail.
    """
    waited = time.time() - started
    needed = ""
    if confirm is None and result.state is State.SUCCESS:
        value, needed = landing.apply_landing(sensor, context, result.xcom_value)
        if not needed:
            set_aside(sensor, "soft_fail", "never_fail")
            sensor.log.info("Success criteria met. Exiting.")
            return value
    if confirm is not None or needed or result.ending is Ending.HANDED_BACK:
        if lost is not None:
            set_aside(sensor, "soft_fail")  # soft_fail is for timeouts: a lost attribute must not skip the task
            raise lost
        run = confirm or (partial(landing.poke_again, needed) if needed else handed_back)
        if run is continue_natively:
            native = own_deferral.natively(sensor, native)
        if run is handed_back:
            if result.reason not in (NEXT_POKE, TRIGGER_FAILED):
                class_proof.withdraw(sensor)
            line = "sensorpool: handed back, runs natively from here: %s"
            if run is not continue_natively:
                line = "sensorpool: handed back, begins from here: %s"
            sensor.log.info(line, result.reason)
        try:
            return run(sensor, context, native, started)
        finally:
            # native code has applied them; resume_execution would also apply them to an AirflowRescheduleException
            set_aside(sensor, "soft_fail", "never_fail")
    # the pool has applied them; resume_execution would apply them to errors that natively pass by them
    set_aside(sensor, "soft_fail", "never_fail")
    reason = result.reason or str(result.ending)
    if result.state is State.SKIPPED:
        raise poke_errors.skip_of(reason) if result.ending is Ending.SKIP else AirflowSkipException(reason)
    match result.ending:
        case Ending.TIMEOUT:
            raise AirflowSensorTimeout(
                f"Sensor has timed out; run duration of {waited} seconds exceeds "
                f"the specified timeout of {sensor.timeout}. ({reason})"
            )
        case Ending.EXECUTION_TIMEOUT:  # at this error the task runner calls on_kill
            raise AirflowTaskTimeout(reason)
        case Ending.FAIL:
            raise poke_errors.failure_of(reason)
        case Ending.CANCELLED:
            raise AirflowFailException(reason)
        case _:
            raise poke_errors.error_of(reason)
