"""What every poke needs besides its group: the classes, how to read answers, and what an overrun is reported as."""

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.copies import end_copy

QUICK = 50e-6  # seconds: a class whose pokes take no longer is quick
WAITS_FOR_ANSWERS = 5e-3  # seconds: a class whose pokes take longer waits for answers


class PokeTools(NamedTuple):
    """What it takes to poke: the classes, and how to read their answers."""

    classes: Classes
    answers: Answers
    pace: dict[str, float]  # how long the latest poke of a class took, in seconds


def overran(group: DueGroup, began: float, limit: float) -> Report:
    """Report a poke that overran its limit (seconds): what it would have seen is not known."""
    reason = f"the poke took longer than its limit of {limit:g} s"
    return Report(group, began, Outcome.POKE_TIMEOUT, reason, None, limit)


def awaited(value: Awaitable[Any]) -> Any:
    """Wait for a coroutine on this thread; its time limit is that of the thread."""

    async def wait() -> Any:
        return await value

    end_copy()
    return asyncio.run(wait())
