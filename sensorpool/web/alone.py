"""The pages as a service of their own, behind one token."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import h11
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from sensorpool.client.pool import Pool
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import printable
from sensorpool.leases import standalone_files
from sensorpool.web.application import application
from sensorpool.web.rendering import secure
from sensorpool.web.token_access import COOKIE, TokenAccess, failed_logins

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_WEEK = 7 * 86_400  # seconds
_QUEUE = 128  # connections
_MOST = 200  # connections
_PATIENCE = 20.0  # seconds for a client to send a whole request
_LOOK = 1.0  # seconds
_GOODBYE = 5.0  # seconds for open requests to end


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in _LOOPBACK


def pages(pool: Pool, access: TokenAccess, *, is_of_this_process: bool = False) -> object:
    """Return the application, which also logs in who opens an address with ``?token=…``.

    :param is_of_this_process: the pool runs here; otherwise what `sensorpool standalone` shows of itself is read in.
    """
    app = application(pool, access, wake_token=pool.settings.wake_token)
    look = _LookAgain(pool)

    async def see(request: Request, call_next: RequestResponseEndpoint) -> Response:
        await run_in_threadpool(look)
        return await call_next(request)

    async def log_in(request: Request, call_next: RequestResponseEndpoint) -> Response:
        given = request.query_params.get("token")
        if given is None or request.method != "GET":
            return await call_next(request)
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        # one slash: a path with two would lead to another host
        answer = RedirectResponse(f"/{request.url.path.lstrip('/')}{rest and f'?{rest}'}", 303)
        secure(answer)
        if access.is_token(given):
            is_secure = request.url.scheme == "https"
            answer.set_cookie(COOKIE, access.cookie, max_age=_WEEK, httponly=True, samesite="strict", secure=is_secure)
        else:
            failed_logins.note(request)
        return answer

    if not is_of_this_process:
        app.add_middleware(BaseHTTPMiddleware, dispatch=see)
    app.add_middleware(BaseHTTPMiddleware, dispatch=log_in)
    return app


class _LookAgain:
    """Reads what `sensorpool standalone` shows of itself, at most once a second; nothing for a pool with a Redis."""

    def __init__(self, pool: Pool) -> None:
        self._settings = pool.settings
        self._lock = threading.Lock()
        self._due = 0.0

    def __call__(self) -> None:
        with self._lock:
            if self._settings.embedded and time.monotonic() >= self._due:
                standalone_files.take_up(self._settings)
                self._due = time.monotonic() + _LOOK


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, so that an address in use is known before anything is printed.

    :raises SettingsError: when it cannot listen.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_QUEUE)
    except socket.gaierror as error:
        raise SettingsError(f"there is no host {printable(host)} ({error.strerror}): name another --host") from None
    except OSError as error:
        raise SettingsError(f"cannot listen on {printable(host)}:{port} ({error}): name another --port") from None


def serve(pool: Pool, access: TokenAccess, listener: socket.socket) -> None:
    """Serve until the process is told to end. Addresses are not logged: they may have the token."""
    _server(pages(pool, access)).run(sockets=[listener])


@contextmanager
def served_beside(pool: Pool, access: TokenAccess, listener: socket.socket) -> Iterator[None]:
    """Serve the pages of a pool that runs in this process in a thread, until the context is left."""
    server = _server(pages(pool, access, is_of_this_process=True))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(_GOODBYE)


class _Bounded(H11Protocol):
    """A connection that ends if no whole request comes in time, or if there are too many: uvicorn bounds neither."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._expect_request()
        if len(self.connections) > _MOST:
            idle = [each for each in self.connections if isinstance(each, _Bounded) and each._lacks_request()]
            min(idle, key=lambda each: each._since, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def _expect_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(_PATIENCE, self._give_up)

    def _give_up(self) -> None:
        if self._lacks_request():
            self.transport.abort()

    def _lacks_request(self) -> bool:
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}


def _server(app: Any) -> uvicorn.Server:
    config = uvicorn.Config(
        app, http=_Bounded, access_log=False, log_level="warning", server_header=False, lifespan="off"
    )
    return uvicorn.Server(config)
