"""The tools of every poke besides its group: the classes, the reader of answers, and the report of an overrun."""

import asyncio
import math
from collections.abc import Awaitable
from typing import Any, NamedTuple

from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.fork_guard import end_copy

QUICK = 50e-6  # seconds: a class whose pokes take no longer is quick


class PokeTools(NamedTuple):
    """The classes, the reader of their answers, and their pace."""

    classes: Classes
    answers: Answers
    pace: dict[str, float]  # how long the latest poke of a class took, in seconds

    def is_quick(self, op_classpath: str) -> bool:
        """Whether a class is quick."""
        return self.pace.get(op_classpath, math.inf) <= QUICK


def overran(group: DueGroup, began: float, limit: float, why: str = "") -> Report:
    """Return the report of a poke that overran its limit; its answer is not known.

    :param limit: seconds.
    :param why: goes on with the reason.
    """
    reason = f"the poke took longer than its limit of {limit:g} s{why}"
    return Report(group, began, Outcome.POKE_TIMEOUT, reason, None, limit)


def awaited(value: Awaitable[Any]) -> Any:
    """Wait for a coroutine on this thread, under the time limit of the thread's poke; return its value."""

    async def wait() -> Any:
        return await value

    end_copy()
    return asyncio.run(wait())
