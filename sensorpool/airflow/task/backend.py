"""The backend that a sensor of Airflow asks: by its own word, or by its connection."""

from collections.abc import Mapping
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.backend import backend_named
from sensorpool.poke.classes import BACKEND_OF

_CONNECTION = "conn_id"
_OF_AIRFLOW = "airflow.providers.standard.sensors.external_task."  # these ask Airflow itself

log = logger(__name__)


def backend_of(sensor: Any, poke_context: Mapping[str, Any]) -> str | None:
    """Return the name of the backend; None: neither the class nor the sensor names one.

    :param sensor: its templates are rendered.
    """
    try:
        if callable(own := getattr(type(sensor), BACKEND_OF, None)):
            return backend_named(own(dict(poke_context)))
        if f"{type(sensor).__module__}.".startswith(_OF_AIRFLOW):
            return "airflow"
        connections = {name: value for name, value in vars(sensor).items() if name.endswith(_CONNECTION)}
        named = {name: found for name, value in connections.items() if (found := backend_named(value)) is not None}
        return named.get(_CONNECTION) or next(iter(named.values()), None)
    except Exception as error:  # a name is for operators: no sensor keeps its slot for it
        log.warning("the backend of a sensor is not known", error=one_line(error))
        return None
