"""Sensors that wait for a moment. The worker computes it: some need the clock, the DAG or the template context."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.sdk import timezone
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.errors import NotPoolable


class Moment:
    """Lands after a moment, as these sensors do, and not yet at it.

    :param target_time: ISO 8601 with an offset.
    """

    __slots__ = ("_target_time",)

    def __init__(self, target_time: str) -> None:
        self._target_time = dt.datetime.fromisoformat(target_time)
        if self._target_time.tzinfo is None:
            raise ValueError("target_time has no offset")

    def poke(self, _: Mapping[str, Any]) -> bool:
        """Whether the moment is past."""
        return dt.datetime.now(dt.UTC) > self._target_time


def adapt(_: type[BaseSensorOperator]) -> type[Moment]:
    """Return what is poked in the place of DateTimeSensor, TimeSensor and TimeDeltaSensor."""
    return Moment


def poke_context_of(sensor: BaseSensorOperator, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the moment that a sensor waits for.

    :raises NotPoolable: for a subclass, which may have a poke of its own.
    """
    target: Any
    cls = type(sensor)
    match f"{cls.__module__}.{cls.__qualname__}".removeprefix("airflow.providers.standard.sensors."):
        case "date_time.DateTimeSensor":
            target = sensor.target_time
            target = timezone.parse(target) if isinstance(target, str) else target
        case "time.TimeSensor":
            target = sensor.target_datetime
        case "time_delta.TimeDeltaSensor":
            delta = sensor.delta if isinstance(sensor.delta, dt.timedelta) else dt.timedelta(minutes=int(sensor.delta))
            target = (context.get("data_interval_end") or context["dag_run"].run_after) + delta
        case _:
            raise NotPoolable(f"{cls.__qualname__} is not known here")
    if not isinstance(target, dt.datetime):
        raise NotPoolable(f"its target is a {type(target).__name__}")
    return {"target_time": timezone.convert_to_utc(target).isoformat()}
