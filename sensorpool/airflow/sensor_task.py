"""A sensor's task: pokes once, registers and leaves its slot; or runs natively and says why.

Order as in AIP-17: templates are rendered and pre_execute has run; then it is asked whether the sensor is poolable.
Whatever goes wrong on the way, the sensor runs as it would without sensorpool, and its log says why in a line.
"""

import time
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import poolable, slot
from sensorpool.airflow.finish import conclude
from sensorpool.airflow.first_poke import FirstPoke
from sensorpool.airflow.intercept import RESUMED, Execute
from sensorpool.airflow.saw import Saw
from sensorpool.model import Registration


def execute(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Stand in for BaseSensorOperator.execute.

    :raises BaseException: whatever that raises.
    """
    left = vars(sensor).pop(RESUMED, None)
    if left is not None:
        saw, started = left
        return conclude(sensor, context, saw, started, native)
    return wait_in_pool(sensor, context, native)


def resume(sensor: Any, context: Any, event: Any = None, started: float = 0.0) -> Any:
    """Enter the sensor's own ``execute`` again, so that a class that does more there does it."""
    vars(sensor)[RESUMED] = (Saw.read(event), started or time.time())
    try:
        return sensor.execute(context)
    finally:
        vars(sensor).pop(RESUMED, None)


def wait_in_pool(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Poke once, register and defer; or run natively and say why.

    :raises TaskDeferred: when it waits in the pool.
    """
    started = time.time()
    try:
        ours = slot.airflow_settings()
        condition = poolable.condition_of(sensor, context, slot.pool().settings, ours)
    except Exception as error:
        slot.keep(sensor, error)
        return native(sensor, context)
    first = FirstPoke(sensor, native)
    if ours.first_poke == "worker":
        result = first.poke(context)
        if first.landed:
            return result
    timeout = max(0.0, sensor.timeout - first.waited)
    try:
        if not condition.adapted:
            first.check(slot.pool().settings.poke_timeout)
        direct = poolable.ends_directly(sensor, context)
        instance = slot.register(
            Registration(
                sensor=condition.op_classpath,
                poke_context=condition.poke_context,
                key=slot.key_of(context["ti"]),
                poke_interval=sensor.poke_interval or 1.0,
                timeout=timeout,
                execution_timeout=_execution_timeout(sensor, first.waited),
                soft_fail=bool(sensor.soft_fail),
                silent_fail=bool(sensor.silent_fail),
                never_fail=bool(sensor.never_fail),
                exponential_backoff=bool(sensor.exponential_backoff),
                max_wait=sensor.max_wait.total_seconds() if sensor.max_wait else None,
                external_id=str(context["ti"].id),
                logical_date=context.get("logical_date"),
            )
        )
    except Exception as error:
        slot.keep(sensor, error)
        return native(sensor, context)
    slot.leave(sensor, instance, direct=direct, timeout=timeout, started=started - first.waited)


def _execution_timeout(sensor: BaseSensorOperator, waited: float) -> float | None:
    """Return what is left of the execution_timeout; in reschedule mode the time between pokes never counts."""
    if sensor.execution_timeout is None or sensor.reschedule:
        return None
    seconds: float = sensor.execution_timeout.total_seconds()
    return max(0.0, seconds - waited)
