"""`TimeSensor`, whose constructor asks the clock for today's date in its DAG's timezone.

Its blueprint keeps the time of day, so it is the same at each parse; the triggerer calls the constructor when the task
begins, as a worker does.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG
from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.codec import decode, encode

CLASSES = frozenset({"airflow.providers.standard.sensors.time.TimeSensor"})


def arguments_of(sensor: BaseOperator) -> dict[str, Any]:
    """Return the arguments of a sensor's constructor as JSON.

    :raises NotPoolable: when it is a moment of the clock, which is another one at each parse.
    """
    given = operators.constructor_arguments(sensor)
    own = {name: value for name, value in given.items() if name not in operators.base_arguments()}
    moment = own.get("target_time")
    if not isinstance(moment, dt.time) or moment.microsecond:
        why = "its target_time is no time of day to the second: it may be another one at each parse"
        raise NotPoolable(why, "arguments")
    return {name: encode(value, f"its argument {name}") for name, value in own.items()}


def build(cls: Any, arguments: Mapping[str, Any], timezone: Any) -> Any:
    """Build a sensor, in a DAG of its own.

    :param timezone: that of the sensor's DAG.
    :raises Exception: whatever its constructor raises.
    """
    start = dt.datetime(2000, 1, 1, tzinfo=timezone)
    dag = DAG("sensorpool", schedule=None, start_date=start, auto_register=False)
    return cls(task_id="sensorpool", dag=dag, **{name: decode(value) for name, value in arguments.items()})
