"""What a landing takes along from the pool: the value for XCom, and what the poke has set of its sensor.

The task that resumes needs no second poke for these. That might find nothing: a poke may take what it finds.
"""

from collections.abc import Collection
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow import compat
from sensorpool.airflow.proof.carried import NotCarried, carry
from sensorpool.airflow.result import Landing
from sensorpool.poke.answer import MAX_XCOM_BYTES, spell_xcom

_VALUE = ""
_FRAME = 1_024  # bytes, around the parts
_LONGEST_REASON = 200  # characters
_MOST = 100


def landing_of(value: Any, sensor: BaseOperator, names: Collection[str]) -> Landing:
    """Carry what can be; say of the rest why it cannot.

    :param value: for XCom.
    :param names: the attributes that the poke has changed.
    """
    attributes = compat.own_attributes(sensor) if names else {}
    carried: dict[str, Any] = {}
    lost: dict[str, str] = {}
    room = MAX_XCOM_BYTES - _FRAME if names else MAX_XCOM_BYTES
    taken = [_VALUE, *sorted(names)]
    if len(taken) > _MOST:
        lost[taken[_MOST]] = f"is one of {len(taken):,} that the poke has set, too many to carry"
    for name in taken[:_MOST]:
        if name and name not in attributes:
            lost[name] = "is gone"
            continue
        try:
            said = carry(name, attributes[name] if name else value)
            size = len(spell_xcom(said)) + len(name)
            if size > room:
                raise NotCarried(f"has {size:,} bytes of JSON, and there is room for {room:,}")
        except (NotCarried, ValueError) as error:
            lost[name] = f"cannot be carried: {error}"[:_LONGEST_REASON]
        else:
            carried[name] = said
            room -= size + 8
    return Landing(carried.pop(_VALUE, None), carried, lost)
