"""A sensor's task: it pokes once, registers and leaves its slot; or it runs natively, with the reason in its log.

The order is that of AIP-17: templates are rendered and pre_execute has run; then it is decided whether the sensor is
poolable. After any error on the way the sensor runs as it would without sensorpool, and a line of its log says why.
"""

import time
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import external_inputs
from sensorpool.airflow.proof.arguments.rebuild import with_first_poke
from sensorpool.airflow.proof.watch import callable_context
from sensorpool.airflow.task import deferral, native_continuation, poolable, reschedule_condition, reschedule_limits
from sensorpool.airflow.task.begun_without_worker import reason_to_start, start, start_of
from sensorpool.airflow.task.conclude import conclude, read_result
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.patch import RESUMED, Execute, begins_on_worker
from sensorpool.airflow.task.saved_attributes import restore, save
from sensorpool.model.values import Instance, Registration


def execute(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Stand in for BaseSensorOperator.execute.

    :raises BaseException: whatever that raises.
    """
    resumed = vars(sensor).pop(RESUMED, None)
    if resumed is not None:
        result, started, lost = resumed
        return conclude(sensor, context, result, started, native, lost)
    if (began := native_continuation.read_start(sensor, context)) is not None:
        deferral.report_native(sensor, NotPoolable("this try was in the pool already", "again"))
        return native_continuation.continue_natively(sensor, context, native, began, is_kept=True)
    return wait_in_pool(sensor, context, native)


def resume(
    sensor: Any,
    context: Any,
    event: Any = None,
    started: float = 0.0,
    as_started: Any = None,
    condition: Any = None,
    limits: Any = None,
    **_: Any,
) -> Any:
    """Enter the sensor's own ``execute`` again, so that the class's own code there runs.

    A sensor that was to start without a worker, and could not, enters it for the first time.

    :param as_started: the saved attributes; None in reschedule mode, and from an earlier version.
    :param condition: the digest of the condition; None in poke mode, and from an earlier version.
    :param limits: what was registered of its limits (`reschedule_limits`); None likewise.
    :param _: arguments of another version.
    """
    if (why := reason_to_start(event)) is not None:
        sensor.log.info("sensorpool: starts on this worker: %s", why)
        return start(sensor, context)
    began, saved = start_of(event)
    started, as_started = started or began, as_started or saved
    result = reschedule_condition.result_if_unchanged(sensor, context, read_result(sensor, context, event), condition)
    result = reschedule_limits.result_if_unchanged(sensor, result, limits)
    lost = None if as_started is None or sensor.reschedule else restore(sensor, as_started)
    callable_context.merge_arguments(sensor, context)
    vars(sensor)[RESUMED] = (result, started or time.time(), lost)
    try:
        return sensor.execute(context)
    finally:
        vars(sensor).pop(RESUMED, None)


def wait_in_pool(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Poke once, register and defer; or run natively, with the reason in the log.

    :raises TaskDeferred: when it waits in the pool.
    """
    try:
        ours = deferral.airflow_settings()
        condition = poolable.condition_of(sensor, context, deferral.pool().settings, ours)
        resume_arguments: dict[str, Any] = (
            reschedule_condition.resume_arguments(condition) | reschedule_limits.resume_arguments(sensor)
            if sensor.reschedule
            else save(sensor)
        )
    except Exception as error:
        deferral.report_native(sensor, error)
        return native(sensor, context)
    if why := begins_on_worker.get((sensor.dag_id, sensor.task_id)):
        sensor.log.info("sensorpool: it begins on a worker: %s", why)
    waits: list[tuple[Instance, bool, float]] = []  # the instance, whether it ends directly, and its timeout

    def register() -> None:
        timeout = max(0.0, sensor.timeout - first.waited)
        poke_context = condition.poke_context
        if not condition.adapted:
            missing = first.missing if ours.first_poke == "worker" else None
            again = external_inputs.with_current_shared_state(sensor, poke_context)
            poke_context = with_first_poke(type(sensor), again, missing, first.of_environment, first.hooks)
        registration = Registration(
            sensor=condition.op_classpath,
            poke_context=poke_context,
            key=deferral.key_of(context["ti"]),
            timeout=timeout,
            execution_timeout=_execution_timeout(sensor, first.waited),
            external_id=str(context["ti"].id),
            logical_date=context.get("logical_date"),
            **deferral.waits_of(sensor),
        )
        direct = poolable.ends_directly(sensor, context) and not (
            sensor.reschedule and reschedule_condition.may_change(sensor, condition)
        )
        waits.append((deferral.register(registration), direct, timeout))

    limit = None if condition.adapted else deferral.pool().settings.poke_timeout
    first = FirstPoke(sensor, native, limit, register)
    if ours.first_poke == "worker":
        result = first.poke(context)
        if first.ended:
            return result
    else:
        try:
            register()
        except Exception as error:
            deferral.report_native(sensor, error)
            return native(sensor, context)
    instance, direct, timeout = waits[0]
    deferral.defer(sensor, instance, direct=direct, timeout=timeout, started=first.began, **resume_arguments)


def _execution_timeout(sensor: BaseSensorOperator, waited: float) -> float | None:
    """Return the seconds left of the execution_timeout; in reschedule mode the time between pokes does not count."""
    if sensor.execution_timeout is None or sensor.reschedule:
        return None
    seconds: float = sensor.execution_timeout.total_seconds()
    return max(0.0, seconds - waited)
