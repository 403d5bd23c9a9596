"""A sensor that continues natively after the pool: its limits count from the moment when it began to wait.

In ``mode="reschedule"`` Airflow counts from the first reschedule of the try, and asks for that date at each poke. A
sensor that was in the pool has its first reschedule only when it is handed back. So its worker keeps the start of the
wait in Airflow's ``task_state_store``, the one place of a try that outlives a reschedule, and Airflow gets that moment
for the date. In ``mode="poke"`` Airflow counts from the start of the process: there the pool's time is added.

This module imports little: with ``enabled`` off, each poke of a sensor in reschedule mode passes here (`patch`).
"""

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sensorpool.airflow.compat import operators, task_runtime
from sensorpool.airflow.compat.exceptions import AirflowRescheduleException
from sensorpool.instrumentation.redaction import one_line

KEY = "sensorpool_handed_back"  # in the task_state_store, which a task's tries share
_FIRST = "get_first_reschedule_date"
_LONGEST = 3650 * 86_400.0  # seconds: more does not fit into a date of Airflow's
_LAST_POKE = 10.0  # seconds left of an execution_timeout that has passed: one poke comes before each end
_MOST_STEPS = 64  # of an exponential backoff

Native = Callable[[Any, Any], Any]


def execute(sensor: Any, context: Any, native: Native) -> Any:
    """Stand in for BaseSensorOperator.execute where no sensor is pooled.

    :raises BaseException: whatever that raises.
    """
    began = read_start(sensor, context)
    return native(sensor, context) if began is None else continue_natively(sensor, context, native, began, is_kept=True)


def read_start(sensor: Any, context: Any) -> float | None:
    """Return the start of the wait of a try that was handed back and rescheduled since, in seconds since 1970."""
    return read_kept_start(sensor, context) if sensor.reschedule and context.get("task_reschedule_count") else None


def read_kept_start(sensor: Any, context: Any) -> float | None:
    """Return the start of the wait of a try, if a worker has kept it, in seconds since 1970."""
    if "task_state_store" not in context:
        return None
    try:
        kept = context["task_state_store"].get(KEY)
        return float(kept["began"]) if kept and kept["try"] == str(context["ti"].id) else None
    except Exception as error:
        sensor.log.warning("sensorpool: the start of its wait cannot be read: %s", one_line(error))
        return None


def continue_natively(sensor: Any, context: Any, native: Native, began: float, *, is_kept: bool = False) -> Any:
    """Run natively a sensor that has begun to wait in another process.

    :param began: the start of the wait, in seconds since 1970.
    :param is_kept: whether Airflow's ``task_state_store`` has it already.
    :raises BaseException: whatever BaseSensorOperator.execute raises.
    """
    if not sensor.reschedule:
        with _counting_on(sensor, time.time() - began):
            return native(sensor, context)
    with _counting_from(context["ti"], dt.datetime.fromtimestamp(began, dt.UTC)):
        try:
            return native(sensor, context)
        except AirflowRescheduleException:
            if not is_kept:
                _keep(sensor, context, began)
            raise


def _keep(sensor: Any, context: Any, began: float) -> None:
    if "task_state_store" not in context:
        sensor.log.warning("sensorpool: this Airflow keeps no start of its wait, its timeout counts from here")
        return
    retention = dt.timedelta(seconds=min(sensor.timeout, _LONGEST), days=1)
    try:
        context["task_state_store"].set(KEY, {"try": str(context["ti"].id), "began": began}, retention=retention)
    except Exception as error:
        line = "sensorpool: the start of its wait cannot be kept, its timeout counts from here: %s"
        sensor.log.warning(line, one_line(error))


@contextmanager
def _counting_from(ti: Any, began: dt.datetime) -> Iterator[None]:
    """Give Airflow a moment for the first reschedule of a try."""
    attributes = vars(ti)
    was = attributes.get(_FIRST)
    attributes[_FIRST] = lambda *_, **__: began
    try:
        yield
    finally:
        del attributes[_FIRST]
        if was is not None:
            attributes[_FIRST] = was


@contextmanager
def _counting_on(sensor: Any, waited: float) -> Iterator[None]:
    """Count the seconds of an earlier wait: they shorten a sensor's limits, and advance its backoff.

    Its poke sees the timeout of the DAG file, and may set another one.
    """
    poke, next_interval = sensor.poke, getattr(sensor, operators.NEXT_INTERVAL)
    made = _steps_made(sensor, waited) if sensor.exponential_backoff else 0
    theirs = {name: vars(sensor)[name] for name in ("poke", operators.NEXT_INTERVAL) if name in vars(sensor)}
    ours: dict[str, Any] = {}
    limit = sensor.execution_timeout
    left = None if limit is None else max(_LAST_POKE, limit.total_seconds() - waited)
    whole = _timeout_of(sensor)

    def apply() -> None:
        nonlocal whole
        whole = _timeout_of(sensor)
        _set_timeout(sensor, max(0.0, whole - waited))
        vars(sensor).update(ours)

    def revert() -> None:
        _set_timeout(sensor, whole)
        for name in ours:
            vars(sensor).pop(name, None)
        vars(sensor).update(theirs)

    def watched_poke(context: Any) -> Any:
        revert()  # the sensor may send itself to another process, or keep a copy
        try:
            return poke(context)
        finally:
            apply()

    ours["poke"] = watched_poke
    ours[operators.NEXT_INTERVAL] = lambda at, duration, count: next_interval(at, duration, count + made)
    apply()
    try:
        with nullcontext() if left is None else task_runtime.execution_timeout(left):
            yield
    finally:
        revert()


def _timeout_of(sensor: Any) -> float:
    """Return a sensor's timeout, past what watches its first poke for reads of its limits."""
    attributes = vars(sensor)
    timeout: float = attributes["timeout"] if "timeout" in attributes else sensor.timeout  # noqa: SIM401  # may be a property
    return timeout


def _set_timeout(sensor: Any, timeout: float) -> None:
    if "timeout" in vars(sensor):
        vars(sensor)["timeout"] = timeout
    else:
        sensor.timeout = timeout


def _steps_made(sensor: Any, waited: float) -> int:
    """Return how many steps of its backoff a sensor has made, with the mean of Airflow's jitter."""
    most = sensor.max_wait.total_seconds() if sensor.max_wait else waited + 1.0
    made, until = 0, 0.0
    while until <= waited and made < _MOST_STEPS:
        made += 1
        until += min(most, 1.5 * max(1.0, sensor.poke_interval * 2.0 ** (made - 2)))
    return made - 1
