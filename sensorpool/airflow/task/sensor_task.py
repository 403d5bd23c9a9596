"""A sensor's task: it pokes once, registers and leaves its slot; or it runs natively, with the reason in its log.

The order is that of AIP-17: templates are rendered and pre_execute has run; then it is decided whether the sensor is
poolable. After any error on the way the sensor runs as it would without sensorpool, and a line of its log says why.
"""

import time
from contextlib import nullcontext
from functools import partial
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.watch import callable_context, denials
from sensorpool.airflow.task import (
    deferral,
    gate,
    native_continuation,
    own_deferral,
    reschedule_condition,
    reschedule_limits,
)
from sensorpool.airflow.task.begun_without_worker import (
    defer_reschedules,
    reason_to_start,
    saved_in,
    start,
    start_of,
)
from sensorpool.airflow.task.conclude import conclude, read_result
from sensorpool.airflow.task.native_continuation import continue_natively
from sensorpool.airflow.task.patch import RESUMED, Execute
from sensorpool.airflow.task.saved_attributes import restore
from sensorpool.airflow.task.wait import FLAPS, wait_anew, wait_in_pool
from sensorpool.model.states import Ending


def execute(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Stand in for BaseSensorOperator.execute.

    :raises BaseException: whatever that raises.
    """
    if own_deferral.is_given_up(sensor):
        return native(sensor, context)
    resumed = vars(sensor).pop(RESUMED, None)
    if resumed is not None:
        result, started, lost, flaps, is_first = resumed
        confirm = None
        if gate.is_confirmed(sensor, result, flaps):
            confirm = partial(gate.confirm, flaps=flaps or 0)
        is_missing = result.ending is Ending.HANDED_BACK and denials.is_of_missing(str(result.reason))
        handed_back = wait_anew if is_first and is_missing else continue_natively
        return conclude(sensor, context, result, started, native, lost, confirm, handed_back)
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
    begun: Any = False,
    is_first: bool = False,
    **more: Any,
) -> Any:
    """Enter the sensor's own ``execute`` again, so that the class's own code there runs.

    A sensor that was to start without a worker, and could not, enters it for the first time.

    :param as_started: the saved attributes; None in reschedule mode.
    :param condition: the digest of the condition; None in poke mode.
    :param limits: what was registered of its limits (`reschedule_limits`); None likewise.
    :param begun: whether the try began without a worker.
    :param is_first: whether it has not been on a worker since.
    :param more: how often its own poke has found nothing (`wait.FLAPS`), and arguments of another version.
    """
    if (why := reason_to_start(event)) is not None:
        sensor.log.info("sensorpool: starts on this worker: %s", why)
        return start(sensor, context, event)
    if not started and start_of(event):
        return resume(sensor, context, event, start_of(event), begun=True, is_first=True, **saved_in(event))
    started = started or time.time()
    with own_deferral.resuming(sensor):
        result = reschedule_condition.result_if_unchanged(
            sensor, context, read_result(sensor, context, event), condition
        )
        result = reschedule_limits.result_if_unchanged(sensor, result, limits)
        lost = None if as_started is None or sensor.reschedule else restore(sensor, as_started)
        callable_context.merge_arguments(sensor, context)
        vars(sensor)[RESUMED] = (result, started, lost, _flaps_of(more), is_first)
        try:
            with defer_reschedules(sensor, started) if begun else nullcontext():
                return sensor.execute(context)
        finally:
            vars(sensor).pop(RESUMED, None)


def _flaps_of(more: Any) -> int | None:
    """Return how often a task's own poke has found nothing; None if it has waited at no gate."""
    flaps = more.get(FLAPS)
    return flaps if type(flaps) is int else None
