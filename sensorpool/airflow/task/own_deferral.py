"""Sensors with ``deferrable=True`` that wait in the pool, and not by a trigger of their own (`deferrable = pool`).

Such a sensor is judged, proved and poked as if it were not deferrable, so it waits for the same condition as one that
is not. What cannot wait in the pool, or comes back from there, defers by itself as ever.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sensorpool.airflow.compat import operators
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import gates, known_sensors
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.task import deferral, poolable

Execute = Callable[[Any, Any], Any]

# the sensor that this process executes as if it were not deferrable, its class's own execute and its execution_timeout
_aside: tuple[Any, Execute, Any] | None = None
_given_up: Any = None  # the one that goes on without the pool


def execute(sensor: Any, context: Any, native: Execute) -> Any:
    """Stand in for the ``execute`` of a class whose sensors may be deferrable.

    :param native: the class's own.
    :raises BaseException: whatever that raises.
    """
    if is_aside(sensor):
        return native(sensor, context)
    try:
        check(sensor)
    except Exception as error:
        deferral.report_native(sensor, error)
        return native(sensor, context)
    with _standing_aside(sensor, native):
        return native(sensor, context)


@contextmanager
def resuming(sensor: Any) -> Iterator[None]:
    """Have a task that was in the pool end there as if it were not deferrable."""
    if getattr(sensor, "deferrable", False) is not True:
        yield
        return
    with _standing_aside(sensor, type(sensor).execute):
        yield


def natively(sensor: Any, native: Execute) -> Execute:
    """Return what a sensor does without the pool: a deferrable one defers by itself.

    :param native: the ``execute`` of a sensor that is not deferrable.
    """
    if _aside is None or _aside[0] is not sensor:
        return native
    _, own, execution_timeout = _aside

    def defer(sensor: Any, context: Any) -> Any:
        global _given_up
        sensor.deferrable, sensor.execution_timeout, _given_up = True, execution_timeout, sensor
        try:
            return own(sensor, context)
        finally:
            _given_up = None

    return defer


def is_given_up(sensor: Any) -> bool:
    """Whether a deferrable sensor goes on without the pool: not all of them defer, whatever they are given."""
    return _given_up is not None and _given_up is sensor


def is_aside(sensor: Any) -> bool:
    """Whether a sensor is deferrable, and executed as if it were not."""
    return _aside is not None and _aside[0] is sensor


def check(sensor: Any) -> None:
    """Check that a deferrable sensor may wait in the pool.

    :raises NotPoolable: when it defers by itself.
    """
    if deferral.airflow_settings().deferrable != "pool":
        raise NotPoolable("it defers by itself", "own_work")
    why = known_sensors.reason_to_defer(type(sensor)) or known_sensors.reason_to_defer_with_arguments(sensor)
    if why is not None:
        raise NotPoolable(f"it defers by itself: {why}", "own_work")
    if gates.gate_of(sensor) is not None:
        raise NotPoolable("it defers by itself: without deferrable=True it does more at its end", "own_work")
    if getattr(sensor, "start_from_trigger", False):
        raise NotPoolable("it defers by itself: its start_from_trigger is set", "own_work")
    if sensor.reschedule:
        raise NotPoolable("it defers by itself: its mode is reschedule", "own_work")
    cls = type(sensor)  # those without an adapter are built again for their condition
    if poolable.is_described_by_adapter(cls) and not known_sensors.asks_its_dag(cls):
        with operators.not_deferrable(sensor):
            rebuild.poke_context_of(sensor)


@contextmanager
def _standing_aside(sensor: Any, own: Execute) -> Iterator[None]:
    global _aside
    before, _aside = _aside, (sensor, own, sensor.execution_timeout)
    try:
        with operators.not_deferrable(sensor):
            yield
    finally:
        _aside = before
