"""The pages in Airflow's API server: made at the first request, and held to a few requests at a time.

The API server also answers the tasks of Airflow, with the same threads. A database of the pool that hangs must not
take them all.
"""

import asyncio
import threading
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

from sensorpool.airflow.ui.airflow_around import AirflowAround
from sensorpool.airflow.ui.permissions import Permissions
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError, SettingsError
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line

AT_ONCE = 4  # requests
PATIENCE = 10.0  # seconds that one more request waits for its turn
_LONGEST = 9_999  # bytes of a form
_TOO_LONG = "sensorpool: no form of these pages is that long"
_WRONG = "sensorpool: its settings are wrong here, or its extra `web` is not installed: the API server's log says which"
_BUSY = "sensorpool: the pages of the pool are busy, for its database or Redis answers slowly; load this one again"

log = logger(__name__)


class LatePages:
    """The pages as an application of ASGI."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._made: Any = None
        self._why_not = ""
        self._lock = threading.Lock()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request; who asks is found out by the application that is made."""
        if scope["type"] != "http":
            return
        try:
            # before its turn: who sends a form slowly must not keep others from theirs
            receive = await asyncio.wait_for(_read(scope, receive), PATIENCE)
            if receive is not None:
                await asyncio.wait_for(self._turns.acquire(), PATIENCE)
        except TimeoutError:
            await PlainTextResponse(_BUSY, 503)(scope, _nothing, send)
            return
        if receive is None:
            await PlainTextResponse(_TOO_LONG, 413)(scope, _nothing, send)
            return
        try:
            answer = self._made or await run_in_threadpool(self._make)
            await (answer or PlainTextResponse(_WRONG, 503))(scope, receive, send)
        finally:
            self._turns.release()

    def _make(self) -> Any:
        """Make the application; None: it cannot be made, which is logged once for each reason."""
        with self._lock:
            if self._made is None:
                try:
                    self._pool, self._made = _pool_and_pages()
                except (SensorpoolError, ImportError, RuntimeError) as error:  # FastAPI raises the last for a package
                    if (why := one_line(error)) != self._why_not:
                        self._why_not = why
                        log.error("the pages of the pool cannot be made", error=why)
            return self._made

    def close(self) -> None:
        """Close the connections of the pages; the next request makes them again."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
            self._pool = self._made = None


async def _read(scope: Any, receive: Any) -> Any:
    """Read the body of a request; return what hands it on, or None if it is longer than any form of the pages."""
    if scope["method"] in {"GET", "HEAD"}:
        return receive
    messages, length = [], 0
    while True:
        message = await receive()
        messages.append(message)
        length += len(message.get("body", b""))
        if length > _LONGEST:
            return None
        if not message.get("more_body", False):
            break

    async def again() -> Any:
        return messages.pop(0) if messages else await receive()

    return again


async def _nothing() -> Any:
    """Stand in for a request that is not read any further."""
    return {"type": "http.disconnect"}


def _pool_and_pages() -> tuple[Pool, Any]:
    from sensorpool.web.application import application

    settings = Settings.load()
    if settings.embedded:
        raise SettingsError("[sensorpool] redis_url names no Redis: the pages look at a pool of other processes")
    pool = Pool(settings)
    return pool, application(pool, Permissions(), AirflowAround())
