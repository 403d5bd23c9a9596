"""Whether Airflow's API server answers, as a triggerer sees it: without it no task can start on a worker.

A worker that starts a task asks the server for some seconds (`[workers] execution_api_retries`); then Airflow fails
the task. So no task resumes while the server is away. A triggerer without an answer some minutes after its start holds
no task back: a network may keep it from the API server for good, and it needs none itself.
"""

import asyncio
import time
from collections.abc import Callable

import httpx

from sensorpool.airflow.compat import task_runtime

FRESH = 1.0  # seconds that an answer counts: thousands may ask at once
FIRST_ANSWER = 120.0  # seconds to wait for the first answer
AT_MOST = 3600.0  # seconds that a task is held back
_TIMEOUT = 5.0  # seconds: a worker's own ([workers] execution_api_timeout)


class ApiServer:
    """One for each notifier; `available` is for the event loop of its triggers."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._has_answered = False
        self._answers = False
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    def ask(self) -> bool:
        """Ask whether the server answers; an error of its own (5xx) is no answer."""
        try:
            self._answers = httpx.get(task_runtime.execution_api_url("health"), timeout=_TIMEOUT).status_code < 500
        except Exception:  # it is down, or cannot be reached from here
            self._answers = False
        self._asked_at = time.monotonic()
        self._has_answered |= self._answers
        return self._answers

    async def available(self, say: Callable[[str], object]) -> None:
        """Return when the server answers, or has been away for too long."""
        began, said = time.monotonic(), False
        while not await self._does_answer() and time.monotonic() < self._deadline(began):
            if not said:
                said = True
                say("sensorpool: Airflow's API server does not answer; the task resumes when it does")
            await asyncio.sleep(FRESH)

    def _deadline(self, began: float) -> float:
        return began + AT_MOST if self._has_answered else self._since + FIRST_ANSWER

    async def _does_answer(self) -> bool:
        async with self._lock:
            if time.monotonic() - self._asked_at > FRESH:
                await asyncio.to_thread(self.ask)
            return self._answers
