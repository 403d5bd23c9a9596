"""The limits of a sensor in ``mode="reschedule"``: natively each poke takes them anew from the DAG file.

A task that leaves its slot takes along what it has registered of them. Where it resumes to an end that they have
decided, the limits that the DAG file gives then are compared with those. If they are others, the task pokes itself.
"""

from typing import Any

from sensorpool.airflow.result import InstanceResult
from sensorpool.model.states import Ending

NAME = "limits"  # the argument of the resume method
_OF_A_TIMEOUT = ("timeout", "soft_fail", "silent_fail")  # an error of the last poke may be silent
_OF_A_FAILURE = ("soft_fail", "never_fail")  # that its poke has asked for
_OF_AN_ERROR = ("silent_fail", "never_fail")
_DECIDE = {Ending.TIMEOUT: _OF_A_TIMEOUT, Ending.FAIL: _OF_A_FAILURE, Ending.POKE_ERROR: _OF_AN_ERROR}


def resume_arguments(sensor: Any) -> dict[str, Any]:
    """Return arguments for the resume method."""
    flags = {name: bool(getattr(sensor, name)) for name in ("soft_fail", "silent_fail", "never_fail")}
    return {NAME: {"timeout": float(sensor.timeout), **flags}}


def result_if_unchanged(sensor: Any, result: InstanceResult, registered: Any) -> InstanceResult:
    """Return the pool's result if the limits that have decided it are unchanged, and else that it is handed back.

    :param registered: of `resume_arguments`; None in poke mode.
    """
    if registered is None:
        return result
    now = resume_arguments(sensor)[NAME]
    for name in _DECIDE.get(result.ending, ()):
        if registered[name] != now[name]:
            why = f"its {name} is {now[name]} now, and was {registered[name]} when it registered"
            return InstanceResult.handed_back(f"{why} (the pool saw: {result.ending})")
    return result
