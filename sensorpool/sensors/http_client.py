"""A few bounded HTTP clients for all HTTP sensors of a process."""

import time
from base64 import b64encode
from codecs import lookup
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from sensorpool.errors import CannotPoke, SettingsError
from sensorpool.sensors.connections import InfraFailure, PokeFailed, connection_object, one_line, shown_url
from sensorpool.sensors.shared import Shared

# a client searches its pool under one lock at each request, so threads share a few small clients
CLIENTS = 8
MAX_CONNECTIONS = 16  # of one client
MAX_REDIRECTS = 5
MAX_BODY_BYTES = 1024 * 1024
# an unwanted body is read up to here and dropped, which is cheaper than a new connection
MAX_UNREAD_BYTES = 64 * 1024
# shorter than servers keep an idle connection (Node.js: 5 s), or a request would meet a closing connection
KEEP_IDLE_SECONDS = 4.0

_clients: Shared[int, httpx.Client] = Shared(CLIENTS)


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


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    credentials: Mapping[str, str],
    timeout: float,
    wanted: int | None = None,
    body_if: Callable[[int], bool] | None = None,
) -> Answer:
    """Ask a server and follow its redirects.

    :param wanted: a status that is the answer even where it is a redirect.
    :param credentials: headers that are sent to the server of this URL and to no other.
    :param timeout: seconds. It limits each step, and is checked between steps, so the whole takes at most twice as
        long.
    :param body_if: returns whether the body of an answer with this status is wanted.
    :raises CannotPoke: when this process cannot speak HTTP.
    :raises InfraFailure: when there is no answer.
    :raises PokeFailed: when the redirects do not end, or lead to a URL that is not HTTP.
    """
    deadline = time.monotonic() + timeout
    client = _clients.get(hash(url) % CLIENTS, _make_client)
    try:
        sent = httpx.Headers(headers)
        sent.update(credentials)
        request = client.build_request(method, url, headers=sent, timeout=timeout)
        home = _origin(request.url)
        for _ in range(MAX_REDIRECTS + 1):
            response = client.send(request, stream=True)
            try:
                if response.next_request is None or response.status_code == wanted:
                    return _read(response, body_if, deadline)
                _read(response, None, deadline)
            finally:
                response.close()
            request = response.next_request
            if _origin(request.url) != home:
                for name in credentials:
                    request.headers.pop(name, None)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.DecodingError) as error:
        raise PokeFailed(f"{shown_url(url)}: {one_line(error, credentials.values())}") from error
    except (httpx.TransportError, TimeoutError) as error:
        said = one_line(error, credentials.values())
        raise InfraFailure(f"{shown_url(url)}: {type(error).__name__}: {said}") from error
    raise PokeFailed(f"{shown_url(url)} redirects more than {MAX_REDIRECTS} times")


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
    whole = len(body) <= limit
    return Answer(
        status=response.status_code,
        phrase=response.reason_phrase,
        body=bytes(body[:limit]) if wanted else b"",
        whole=whole,
        charset=_charset(response),
    )


def _charset(response: httpx.Response) -> str:
    try:
        return lookup(response.charset_encoding or "utf-8").name
    except LookupError:
        return "utf-8"


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _make_client() -> httpx.Client:
    try:
        return httpx.Client(
            headers={
                "User-Agent": "sensorpool",
                "Accept-Encoding": "identity",  # a small compressed body may be a large one
            },
            # all sensors share a client, so it must keep no cookies
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_IDLE_SECONDS,
            ),
        )
    except (ImportError, ValueError, OSError) as error:
        # a proxy or a certificate file of the environment is wrong: the worker is to blame, not the sensor
        raise CannotPoke(f"this worker cannot speak HTTP: {one_line(error)}") from error
