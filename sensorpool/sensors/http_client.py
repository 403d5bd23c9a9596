"""The questions of HTTP sensors: a URL is asked, its redirects are followed, and a bounded part of a body is read.

The standard library asks, on connections that are kept (`http_connections`). httpx takes four times as long; it reads
URLs and answers, and asks what is rare: by a proxy, and where a redirect leads to a URL with a user or to no HTTP.
"""

import ssl
import time
from base64 import b64encode
from codecs import lookup
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies

import httpx

from sensorpool.errors import CannotPoke, SettingsError
from sensorpool.sensors.connections import InfraFailure, PokeFailed, connection_object, one_line, shown_url
from sensorpool.sensors.http_connections import Connections, Headers, Origin, check_headers
from sensorpool.sensors.shared import Shared

# a client searches its pool under one lock at each request, so threads share a few small clients
CLIENTS = 8
MAX_CONNECTIONS = 16  # of one client
MAX_REDIRECTS = 5
MAX_BODY_BYTES = 1024 * 1024
# an unwanted body is read up to here and dropped, which is cheaper than a new connection
MAX_UNREAD_BYTES = 64 * 1024
# shorter than servers keep an idle connection (Node.js: 5 s): httpx does not send again on another
KEEP_IDLE_SECONDS = 4.0
_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",  # a small compressed body may be a large one
    "Connection": "keep-alive",
    "User-Agent": "sensorpool",
}


@dataclass(frozen=True, slots=True)
class Base:
    """The base URL of a connection, and the headers with its credentials."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server. ``whole`` is false if only a part of the body was read."""

    status: int
    phrase: str
    body: bytes = b""
    whole: bool = True
    charset: str = "utf-8"


@lru_cache(maxsize=256)
def base(name: str, value: str) -> Base:
    """Read the value of a connection's variable ``name``.

    :raises SettingsError: when it is neither a URL nor a JSON object of the right form; the text leaves out the value.
    """
    headers: object = {}
    url: object = value
    if value.startswith("{"):
        found = connection_object(name, value)
        url, headers = found.get("base_url"), found.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        raise SettingsError(f'{name}: "headers" is an object of names and texts')
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        raise SettingsError(f'{name}: the base URL ("base_url") is not one like https://host/path') from None
    if parts.query or parts.fragment:
        raise SettingsError(f"{name}: the base URL ends with its path; a query belongs to the sensor's url")
    user, separator, password = parts.netloc.rpartition("@")[0].partition(":")
    if user or separator:
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        headers = {"Authorization": f"Basic {b64encode(pair).decode()}"} | headers
    host = parts.netloc.rpartition("@")[2]
    return Base(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), headers)


@dataclass(frozen=True, slots=True)
class Question:
    """A request, ready to be sent again and again.

    :param credentials: headers that are sent to the server of this URL and to no other.
    :param origin: its server; None: only httpx can ask it.
    :param target: what its server is asked for.
    :param sent: all headers, as they are sent.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    credentials: Mapping[str, str] = field(repr=False)
    origin: Origin | None
    target: str = field(repr=False)
    sent: Headers = field(repr=False)

    @property
    def shown(self) -> str:
        """The URL, so that it can be shown."""
        return shown_url(self.url)


def question(
    method: str, url: str | httpx.URL, *, headers: Mapping[str, str], credentials: Mapping[str, str]
) -> Question:
    """Make a request ready.

    :raises InfraFailure: when a header of the connection cannot be sent.
    :raises PokeFailed: when the URL is malformed.
    """
    try:
        request = _request(method, url, headers, credentials)
        origin = None if request.url.userinfo else Origin.of(request.url)
        check_headers(request.headers.raw)
    except (httpx.InvalidURL, httpx.LocalProtocolError) as error:
        raise _failure(error, str(url), credentials) from error
    target = request.url.raw_path.decode("ascii")
    return Question(method, str(url), headers, credentials, origin, target, request.headers.raw)


def ask(
    first: Question, *, timeout: float, wanted: int | None = None, body_if: Callable[[int], bool] | None = None
) -> Answer:
    """Ask a server and follow its redirects.

    :param timeout: seconds. It limits each step, and is checked between steps, so the whole takes at most twice as
        long.
    :param wanted: a status that is the answer even where it is a redirect.
    :param body_if: returns whether the body of an answer with this status is wanted.
    :raises CannotPoke: when this process cannot speak HTTP.
    :raises InfraFailure: when there is no answer.
    :raises PokeFailed: when the redirects do not end, or lead to a URL that is not HTTP.
    """
    deadline, asked = time.monotonic() + timeout, first
    try:
        for _ in range(MAX_REDIRECTS + 1):
            response = _send(asked, timeout)
            try:
                if response.status_code == wanted or not response.has_redirect_location:
                    return _read(response, body_if, deadline)
                _read(response, None, deadline)
            finally:
                response.close()
            asked = _redirected(asked, response.headers["Location"])
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise _failure(error, first.url, first.credentials) from error
    raise PokeFailed(f"{first.shown} redirects more than {MAX_REDIRECTS} times")


def _failure(error: Exception, url: str, credentials: Mapping[str, str]) -> Exception:
    said = one_line(error, credentials.values())
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL | httpx.DecodingError):
        return PokeFailed(f"{shown_url(url)}: {said}")
    return InfraFailure(f"{shown_url(url)}: {type(error).__name__}: {said}")


def _request(
    method: str, url: str | httpx.URL, headers: Mapping[str, str], credentials: Mapping[str, str], **more: Any
) -> httpx.Request:
    sent = httpx.Headers(_HEADERS)
    sent.update(headers)
    sent.update(credentials)
    return httpx.Request(method, url, headers=sent, **more)


def _send(asked: Question, timeout: float) -> httpx.Response:
    direct = _direct.get("", _Direct)
    if asked.origin is not None and not direct.has_proxies:
        return direct.connections.ask(asked.origin, asked.method, asked.target, asked.sent, timeout)
    client = _clients.get(hash(asked.url) % CLIENTS, _make_client)
    limits = {"timeout": httpx.Timeout(timeout).as_dict()}
    request = _request(asked.method, asked.url, asked.headers, asked.credentials, extensions=limits)
    return client.send(request, stream=True)


def _redirected(asked: Question, location: str) -> Question:
    """Return the next question. What a connection adds does not go to another server, nor on from there."""
    here = httpx.URL(asked.url)
    try:
        there = here.join(location)
    except httpx.InvalidURL as error:
        raise httpx.RemoteProtocolError(f"Invalid URL in location header: {error}.") from None
    headers, credentials = asked.headers, asked.credentials
    if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
        headers = {name: text for name, text in headers.items() if name.lower() != "host"}
        credentials = {}
    return question(asked.method, there, headers=headers, credentials=credentials)


def _read(response: httpx.Response, body_if: Callable[[int], bool] | None, deadline: float) -> Answer:
    wanted = body_if is not None and body_if(response.status_code)
    limit = MAX_BODY_BYTES if wanted else MAX_UNREAD_BYTES
    body = bytearray()
    for chunk in response.iter_bytes() if wanted else response.iter_raw():
        body += chunk
        if len(body) > limit:
            break
        if time.monotonic() > deadline:
            if wanted:
                raise TimeoutError("the body did not come in time")
            break
    if not wanted:
        return Answer(response.status_code, response.reason_phrase)
    whole = len(body) <= limit
    return Answer(response.status_code, response.reason_phrase, bytes(body[:limit]), whole, _charset(response))


def _charset(response: httpx.Response) -> str:
    try:
        return lookup(response.charset_encoding or "utf-8").name
    except LookupError:
        return "utf-8"


class _Direct:
    """The connections of this process, and whether its environment has proxies, which they do not know."""

    def __init__(self) -> None:
        proxies = getproxies()
        self.has_proxies = any(proxies.get(scheme) for scheme in ("http", "https", "all"))
        self.connections = Connections(_make_tls)


def _make_tls() -> ssl.SSLContext:
    with _speaking():
        return httpx.create_ssl_context()


def _make_client() -> httpx.Client:
    with _speaking():
        return httpx.Client(
            # all sensors share a client, so it must keep no cookies
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_IDLE_SECONDS,
            ),
        )


@contextmanager
def _speaking() -> Iterator[None]:
    """Blame the worker, not the sensor, for a wrong proxy or certificate file of the environment."""
    try:
        yield
    except (ImportError, ValueError, OSError) as error:
        raise CannotPoke(f"this worker cannot speak HTTP: {one_line(error)}") from error


_direct: Shared[str, _Direct] = Shared(1)
_clients: Shared[int, httpx.Client] = Shared(CLIENTS)
