"""How a task ends whose poke landed in the pool: it has what that poke gave, and needs no other one.

A second poke might find nothing: a poke may move a file, or take a message. So there is one only where something is
needed that could not be carried; and if that finds nothing, the try fails, rather than wait for what has come already.
"""

from collections.abc import Callable, Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowException

from sensorpool.airflow import compat
from sensorpool.airflow.proof import carried
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import as_started, poolable
from sensorpool.airflow.task.handed_back import go_on
from sensorpool.instrumentation.redaction import one_line

VALUE = ""  # the name of the value for XCom among what was lost


class _FoundNothing(BaseException):
    """The second poke found nothing. Not an Exception: Airflow takes those for errors of the poke."""


def without_value(why: str) -> Any:
    """Return what stands for a landing whose value cannot be had."""
    return Landing(lost={VALUE: why}).as_xcom()


def take(sensor: Any, context: Any, xcom: Any) -> tuple[Any, str]:
    """Return the value of a landing, and give the sensor what the poke has set of it.

    :param xcom: as it was read from the pool's database.
    :return: the value, and what else is needed that only another poke can give; empty for nothing.
    """
    landing = Landing.read(xcom)
    lost = dict(landing.lost)
    value: Any = None
    try:
        value = carried.read(landing.value)
    except Exception as error:  # of another version perhaps
        lost[VALUE] = f"cannot be read: {one_line(error)}"
    _give(sensor, landing.attributes, lost)
    needed = _needed(sensor, context, lost)
    return value, "; ".join(
        f"its {f'attribute {name}' if name else 'XCom value'} {why}" for name, why in sorted(needed.items())
    )


def poke_again(needed: str, sensor: Any, context: Any, native: Callable[[Any, Any], Any], started: float) -> Any:
    """Poke natively; return what BaseSensorOperator.execute does.

    :param needed: what it is for (`take`).
    :param started: when the task began to wait, in seconds since 1970.
    :raises AirflowException: when the poke finds nothing.
    :raises BaseException: whatever it raises.
    """
    sensor.log.info("sensorpool: its poke landed in the pool, and is made once more for what was not kept: %s", needed)
    own_poke = sensor.poke

    def poke(context: Any) -> Any:
        vars(sensor).pop("poke", None)  # it may send itself to another process, or keep a copy
        found = own_poke(context)
        if not found:
            raise _FoundNothing
        return found

    vars(sensor)["poke"] = poke
    try:
        return go_on(sensor, context, native, started)
    except _FoundNothing:
        raise AirflowException(
            f"sensorpool: the task's poke has landed in the pool, and finds nothing any more: {needed}. The next try "
            "waits for something new. What a poke gives that takes what it finds has to be what JSON can say, 256 KiB "
            "at most, and no secret; or exclude the task."
        ) from None
    finally:
        vars(sensor).pop("poke", None)


def _give(sensor: Any, attributes: Mapping[str, Any], lost: dict[str, str]) -> None:
    """Give a sensor attributes, but none that every sensor has: they were read from a database."""
    for name, said in attributes.items():
        if name in compat.base_attributes() or not as_started.is_attribute(type(sensor), name):
            continue
        try:
            as_started.put(sensor, name, carried.read(said))
        except Exception as error:  # of another version, or of an odd class
            lost[name] = f"cannot be read: {one_line(error)}"


def _needed(sensor: Any, context: Any, lost: Mapping[str, str]) -> dict[str, str]:
    """Return what of that which was lost something of the task may ask for."""
    if poolable.works_with_what_is_left(sensor, context):
        return dict(lost)
    return {VALUE: lost[VALUE]} if VALUE in lost and sensor.do_xcom_push else {}
