"""The end of a task whose poke landed in the pool: it has the poke's value and attributes, and needs no second poke.

A second poke may find nothing: a poke may move a file, or take a message. So there is one only if the task needs a
value that could not be carried. If that poke finds nothing, the try fails, rather than wait for a past event.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sensorpool.airflow.compat import operators
from sensorpool.airflow.compat.exceptions import AirflowException
from sensorpool.airflow.proof.arguments import portable_values
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import poolable, saved_attributes
from sensorpool.airflow.task.native_continuation import continue_natively
from sensorpool.instrumentation.redaction import one_line

VALUE = ""  # the name of the value for XCom among the lost parts


class _FoundNothing(BaseException):
    """The second poke found nothing. Not an Exception: Airflow takes exceptions for errors of the poke."""


def landing_without_value(why: str) -> Any:
    """Return the landing of a task whose value cannot be read."""
    return Landing(lost={VALUE: why}).as_xcom()


def apply_landing(sensor: Any, context: Any, xcom: Any) -> tuple[Any, str]:
    """Return the value of a landing, and set the attributes that the poke has set.

    :param xcom: the landing, as read from the pool's database.
    :return: the value, and a text that names what the task needs of a second poke; empty if it needs nothing.
    """
    landing = Landing.read(xcom)
    lost = dict(landing.lost)
    value: Any = None
    try:
        value = portable_values.load(landing.value)
    except Exception as error:  # from another version, perhaps
        lost[VALUE] = f"cannot be read: {one_line(error)}"
    _set_attributes(sensor, landing.attributes, lost)
    needed = _needed(sensor, context, lost)
    return value, "; ".join(
        f"its {f'attribute {name}' if name else 'XCom value'} {why}" for name, why in sorted(needed.items())
    )


def poke_again(needed: str, sensor: Any, context: Any, native: Callable[[Any, Any], Any], started: float) -> Any:
    """Poke natively, and return the result of BaseSensorOperator.execute.

    :param needed: what the poke is for (`apply_landing`).
    :param started: when the task began to wait, in seconds since 1970.
    :raises AirflowException: when the poke finds nothing.
    :raises BaseException: whatever ``execute`` raises.
    """
    sensor.log.info(
        "sensorpool: its poke landed in the pool, and is made once more for what was not carried: %s", needed
    )
    own_poke = sensor.poke

    def poke(context: Any) -> Any:
        vars(sensor).pop("poke", None)  # the sensor may send itself to another process, or keep a copy
        found = own_poke(context)
        if not found:
            raise _FoundNothing
        return found

    vars(sensor)["poke"] = poke
    try:
        return continue_natively(sensor, context, native, started)
    except _FoundNothing:
        raise AirflowException(
            f"sensorpool: the task's poke has landed in the pool, and finds nothing any more: {needed}. The next try "
            "waits for something new. The value of a poke that consumes what it finds has to be one that JSON can "
            "hold, 256 KiB at most, and no secret; or exclude the task."
        ) from None
    finally:
        vars(sensor).pop("poke", None)


def _set_attributes(sensor: Any, attributes: Mapping[str, Any], lost: dict[str, str]) -> None:
    """Set a sensor's own attributes, and no others: the names come from a database."""
    for name, encoded in attributes.items():
        if name in operators.base_attributes() or not saved_attributes.is_plain_attribute(type(sensor), name):
            continue
        try:
            saved_attributes.set_attribute(sensor, name, portable_values.load(encoded))
        except Exception as error:  # from another version, or an odd class
            lost[name] = f"cannot be read: {one_line(error)}"


def _needed(sensor: Any, context: Any, lost: Mapping[str, str]) -> dict[str, str]:
    """Return the lost parts that code of the task may read."""
    if poolable.reads_poke_results(sensor, context):
        return dict(lost)
    return {VALUE: lost[VALUE]} if VALUE in lost and sensor.do_xcom_push else {}
