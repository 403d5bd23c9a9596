"""A sensor's task: pokes once, registers and leaves its slot; or runs natively and says why.

Order as in AIP-17: templates are rendered and pre_execute has run; then it is asked whether the sensor is poolable.
Whatever goes wrong on the way, the sensor runs as it would without sensorpool, and its log says why in a line.
"""

import time
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import built
from sensorpool.airflow.proof.rebuild import with_missing
from sensorpool.airflow.task import anew, deferral, handed_back, poolable
from sensorpool.airflow.task.as_started import put_back, tell
from sensorpool.airflow.task.conclude import conclude, what_was_seen
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.patch import RESUMED, Execute
from sensorpool.model.values import Instance, Registration


def execute(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Stand in for BaseSensorOperator.execute.

    :raises BaseException: whatever that raises.
    """
    left = vars(sensor).pop(RESUMED, None)
    if left is not None:
        result, started, lost = left
        return conclude(sensor, context, result, started, native, lost)
    if (began := handed_back.when_it_began(sensor, context)) is not None:
        deferral.keep(sensor, NotPoolable("this try was in the pool already", "again"))
        return handed_back.go_on(sensor, context, native, began, is_kept=True)
    return wait_in_pool(sensor, context, native)


def resume(
    sensor: Any,
    context: Any,
    event: Any = None,
    started: float = 0.0,
    as_started: Any = None,
    condition: Any = None,
    **_: Any,
) -> Any:
    """Enter the sensor's own ``execute`` again, so that a class that does more there does it.

    :param as_started: what it was built with when it started; None in reschedule mode, and of the version before.
    :param condition: what it waited for; None in poke mode, and of the version before.
    :param _: what another version left for itself.
    """
    result = anew.still_for(sensor, context, what_was_seen(sensor, context, event), condition)
    lost = None if as_started is None or sensor.reschedule else put_back(sensor, as_started)
    vars(sensor)[RESUMED] = (result, started or time.time(), lost)
    try:
        return sensor.execute(context)
    finally:
        vars(sensor).pop(RESUMED, None)


def wait_in_pool(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Poke once, register and defer; or run natively and say why.

    :raises TaskDeferred: when it waits in the pool.
    """
    try:
        ours = deferral.airflow_settings()
        condition = poolable.condition_of(sensor, context, deferral.pool().settings, ours)
        told = anew.tell(condition) if sensor.reschedule else tell(sensor)
    except Exception as error:
        deferral.keep(sensor, error)
        return native(sensor, context)
    waits: list[tuple[Instance, bool, float]] = []  # the instance, whether it ends directly, and its timeout

    def register() -> None:
        timeout = max(0.0, sensor.timeout - first.waited)
        poke_context = condition.poke_context
        if not condition.adapted:
            missing = first.missing if ours.first_poke == "worker" else None
            again = built.again(sensor, poke_context)
            poke_context = with_missing(type(sensor), again, missing, first.of_environment)
        registration = Registration(
            sensor=condition.op_classpath,
            poke_context=poke_context,
            key=deferral.key_of(context["ti"]),
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
        direct = poolable.ends_directly(sensor, context) and not (sensor.reschedule and anew.may_come(sensor))
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
            deferral.keep(sensor, error)
            return native(sensor, context)
    instance, direct, timeout = waits[0]
    deferral.leave(sensor, instance, direct=direct, timeout=timeout, started=first.began, **told)


def _execution_timeout(sensor: BaseSensorOperator, waited: float) -> float | None:
    """Return what is left of the execution_timeout; in reschedule mode the time between pokes never counts."""
    if sensor.execution_timeout is None or sensor.reschedule:
        return None
    seconds: float = sensor.execution_timeout.total_seconds()
    return max(0.0, seconds - waited)
