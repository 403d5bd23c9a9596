"""What a landing takes along from the pool: the value for XCom, and the attributes that the poke has set.

So the task that resumes needs no second poke, which may find nothing: a poke may consume what it finds.
"""

from collections.abc import Collection
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof.arguments.portable_values import NotPortable, dump
from sensorpool.airflow.result import Landing
from sensorpool.poke.answer import MAX_XCOM_BYTES, spell_xcom

_VALUE = ""
_FRAME = 1_024  # bytes, around the parts
_LONGEST_REASON = 200  # characters
_MOST = 100


def landing_of(value: Any, sensor: BaseOperator, names: Collection[str]) -> Landing:
    """Return the landing of a poke; a value that JSON cannot carry is lost, with the reason.

    :param value: for XCom.
    :param names: the attributes that the poke has changed.
    """
    attributes = operators.own_attributes(sensor) if names else {}
    carried: dict[str, Any] = {}
    lost: dict[str, str] = {}
    room = MAX_XCOM_BYTES - _FRAME if names else MAX_XCOM_BYTES
    parts = [_VALUE, *sorted(names)]
    if len(parts) > _MOST:
        lost[parts[_MOST]] = f"is one of {len(parts):,} that the poke has set, too many to carry"
    for name in parts[:_MOST]:
        if name and name not in attributes:
            lost[name] = "is gone"
            continue
        try:
            encoded = dump(name, attributes[name] if name else value)
            size = len(spell_xcom(encoded)) + len(name)
            if size > room:
                raise NotPortable(f"has {size:,} bytes of JSON, and there is room for {room:,}")
        except (NotPortable, ValueError) as error:
            lost[name] = f"cannot be carried: {error}"[:_LONGEST_REASON]
        else:
            carried[name] = encoded
            room -= size + 8
    return Landing(carried.pop(_VALUE, None), carried, lost)
