"""One poke here and now, for `try`: what the pool would see of it, and the traceback of an error."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.model.identity import canonical_context
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes, Way
from sensorpool.poke.fork_guard import own_right
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.sensors.shared import set_time_limit

_THIS_PROCESS = 1  # the number of the only event loop


@dataclass(frozen=True, slots=True)
class OnePoke:
    """What one poke saw.

    :param seconds: how long the constructor and the poke took.
    :param traceback: that of the error, without secrets; None where the poke answered.
    """

    op_classpath: str
    outcome: Outcome
    reason: str | None
    xcom_value: Any
    seconds: float
    traceback: str | None


def poke_once(
    settings: Settings, op_classpath: str, poke_context: Mapping[str, Any], *, classes: Classes | None = None
) -> OnePoke:
    """Poke an enabled class once in this process, as a worker would. Nothing is registered or settled.

    A poke that hangs is ended by nothing but Ctrl-C.

    :param classes: the classes that may be poked; default: those of the settings.
    :raises ClassRefused: when it is no class path.
    :raises ClassUnavailable: when the class is not enabled, cannot be imported, or is no sensor class.
    :raises Refused: when the class does not take the context, or it is none that can be registered.
    """
    own_right()  # pytest and the like fork, and poke in the copy
    classes = classes or Classes(settings.sensors_enabled)
    sensor_class = classes.find(classes.allow(op_classpath))
    # as registration does: a constructor that changes its arguments changes none that are poked
    text = canonical_context(poke_context)
    classes.try_out(sensor_class.op_classpath, json.loads(text))
    answers = Answers(settings.infra_failures)
    set_time_limit(settings.poke_timeout)
    group = DueGroup(0, 0, 0, 0, 0, 0, 0, None)
    tools = PokeTools(classes, answers, {})
    unit = PokeUnit(group, sensor_class.op_classpath, text, tools)
    began = time.monotonic()
    [report] = asyncio.run(unit.poke_async(_THIS_PROCESS)) if sensor_class.way is Way.ASYNC else unit.poke()
    seconds = time.monotonic() - began
    value = None if report.xcom_value is None else json.loads(report.xcom_value)
    traceback = None if report.trace is None else report.trace.text
    return OnePoke(sensor_class.op_classpath, report.outcome, report.reason, value, seconds, traceback)
