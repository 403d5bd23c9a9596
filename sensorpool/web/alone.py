"""The pages as a service of their own, behind one token."""

import hmac
import socket
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sensorpool.client.pool import Pool
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import printable
from sensorpool.leases import standalone_files
from sensorpool.web.access import Denied, Reader
from sensorpool.web.application import application
from sensorpool.web.rendering import secure
from sensorpool.web.waking import given_in, note_failed_login

COOKIE = "sensorpool_login"
_CHALLENGE = 'Basic realm="sensorpool", charset="UTF-8"'
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})  # addresses that only this machine reaches
_WEEK = 7 * 86_400  # seconds
_QUEUE = 128  # connections
_MOST = 200  # connections; a further one is answered with 503


class TokenAccess:
    """Lets in who knows the token, to all pages.

    :param may_act: whether readers may also do something, and not only look.
    """

    def __init__(self, token: str, *, may_act: bool) -> None:
        self._token = token.encode()
        self._may_act = may_act

    @property
    def cookie(self) -> str:
        """The value of the cookie of who has logged in: it tells nothing of the token."""
        return hmac.new(self._token, b"sensorpool login", sha256).hexdigest()

    def is_token(self, text: str) -> bool:
        """Whether a text is the token, in a time that tells nothing of how much of it is right."""
        return hmac.compare_digest(text.encode(errors="replace"), self._token)

    def reader(self, request: Request) -> Reader:
        """Return who asks: the user name of a basic login, else ``token``.

        :raises Denied: when the token is missing or wrong.
        """
        user, token = given_in(request.headers.get("authorization", ""))
        name = user or "token" if self.is_token(token) else None
        if name is None and hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self.cookie.encode()):
            name = "token"
        if name is None:
            if "authorization" in request.headers:
                note_failed_login(request)
            raise Denied("log in with the token: any user name, and the token as the password", 401, _CHALLENGE)
        changed = None if self._may_act else ()
        return Reader(name, changed=changed, operates=self._may_act, watches=True, oversees=True)


def pages(pool: Pool, access: TokenAccess) -> object:
    """Return the application, which also logs in who opens an address with ``?token=…``."""
    app = application(pool, access, wake_token=pool.settings.wake_token)

    async def see(request: Request, call_next: RequestResponseEndpoint) -> Response:
        await run_in_threadpool(standalone_files.take_up, pool.settings)
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
            note_failed_login(request)
        return answer

    if pool.settings.embedded:
        app.add_middleware(BaseHTTPMiddleware, dispatch=see)
    app.add_middleware(BaseHTTPMiddleware, dispatch=log_in)
    return app


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, so that an address in use is known before anything is printed.

    :raises SettingsError: when it cannot listen.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_QUEUE)
    except OSError as error:
        said = f"cannot listen on {printable(host)}:{port} ({error}): name another --host or --port"
        raise SettingsError(said) from None


def serve(pool: Pool, access: TokenAccess, listener: socket.socket) -> None:
    """Serve until the process is told to end. Addresses are not logged: they may have the token."""
    server(pages(pool, access)).run(sockets=[listener])


def server(app: Any) -> uvicorn.Server:
    """Return a server of the pages."""
    return uvicorn.Server(
        uvicorn.Config(
            app, limit_concurrency=_MOST, access_log=False, log_level="warning", server_header=False, lifespan="off"
        )
    )
