"""Whether a task still waits in a trigger, according to Airflow.

Airflow calls a trigger's ``on_kill`` where its task was marked or cleared, and also where another triggerer has the
trigger now: after a stall of more than ``[triggerer] triggerer_health_check_threshold``. Only the task's state tells.
"""

import asyncio
from typing import Any

from sensorpool.airflow.compat import task_runtime

TIME_LIMIT = 20.0  # seconds for an answer: Airflow ends an on_kill after 30 ([triggerer] on_kill_timeout)
_AT_ONCE = 8  # questions: the events of other triggers take the same way


class TaskStates:
    """One for each notifier; for the event loop of its triggers."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def waits(self, ti: Any) -> bool:
        """Whether a task instance is deferred.

        :param ti: the task instance that the trigger has from Airflow.
        :raises LookupError: when the trigger has none.
        :raises Exception: when Airflow does not answer, or not within `TIME_LIMIT`.
        """
        if ti is None:
            raise LookupError("its trigger has no task instance")
        async with asyncio.timeout(TIME_LIMIT), self._turns:
            return await task_runtime.state_of(ti) == "deferred"
