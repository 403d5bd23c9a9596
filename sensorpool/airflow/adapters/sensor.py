"""Any sensor that can be built again from its arguments."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NoReturn

from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferred

from sensorpool.airflow import compat
from sensorpool.airflow.codec import decode, encode
from sensorpool.airflow.rebuild import rebuild
from sensorpool.errors import HandBack
from sensorpool.model import PokeReturnValue
from sensorpool.poke.answer import spell_xcom


class RebuiltSensor:
    """Stands in for a sensor class in the pool."""

    __slots__ = ("_sensor",)
    sensor_class: ClassVar[type[BaseSensorOperator]]

    def __init__(self, **poke_context: Any) -> None:
        self._sensor = rebuild(self.sensor_class, poke_context)

    def poke(self, _: Mapping[str, Any]) -> Any:
        """Poke the sensor; what it returns for XCom is encoded."""
        try:
            found = self._sensor.poke(NO_CONTEXT)
        except (AirflowRescheduleException, TaskDeferred) as error:
            raise HandBack(f"its poke raised {type(error).__name__}, which only a worker can follow") from None
        value = getattr(found, "xcom_value", None)
        if value is None:
            return found
        return PokeReturnValue(True, _encoded(value)) if found else False


def _encoded(value: Any) -> Any:
    """Encode an XCom value.

    :raises HandBack: when the pool cannot carry it: on its worker Airflow can, or says why not.
    """
    try:
        encoded = encode(value, "its XCom value")
        decode(encoded)
        spell_xcom(encoded)
    except Exception as error:
        raise HandBack(f"only a worker can push its XCom value: {error}") from None
    return encoded


def adapt(cls: type[BaseSensorOperator]) -> type[RebuiltSensor]:
    """Return what is poked in the place of a sensor class."""
    compat.become_server()
    return type(f"Rebuilt{cls.__name__}", (RebuiltSensor,), {"__slots__": (), "sensor_class": cls})


class _NoContext(dict[str, Any]):
    """The template context in the pool: there is none. A sensor that reads it goes back to its worker."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise HandBack("its poke reads the template context, which only a worker has")

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    __getitem__ = get = __contains__ = keys = values = items = _refuse
    __len__ = _refuse  # bool() comes this way too
    __setitem__ = __delitem__ = __or__ = __ror__ = __ior__ = _refuse
    copy = pop = popitem = setdefault = update = clear = _refuse


NO_CONTEXT = _NoContext()
