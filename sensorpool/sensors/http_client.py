"""The questions of HTTP sensors: a URL is asked, its redirects are followed, and a bounded part of a body is read."""

import re
import time
from base64 import b64encode
from codecs import lookup
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from functools import lru_cache
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import DecodeError, HTTPError, LocationParseError
from urllib3.util import parse_url

from sensorpool.errors import SettingsError
from sensorpool.sensors.connections import InfraFailure, PokeFailed, connection_object, one_line, shown_url
from sensorpool.sensors.http_connections import Connections, Origin
from sensorpool.sensors.shared import Shared

MAX_REDIRECTS = 5
MAX_BODY_BYTES = 1024 * 1024
# an unwanted body is read up to here and dropped, which is cheaper than a new connection
MAX_UNREAD_BYTES = 64 * 1024
_PIECE = 64 * 1024
_PORTS = {"http": 80, "https": 443}
_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",  # a small compressed body may be a large one
    "User-Agent": "sensorpool",
}
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+:[\x20-\x7e\t]*", re.ASCII)

_connections: Shared[str, Connections] = Shared(1)


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
    headers: Mapping[str, str]
    body: bytes = b""
    whole: bool = True

    @property
    def charset(self) -> str:
        """The declared charset of the body."""
        return _charset(self.headers.get("Content-Type", ""))


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
    if not all(_HEADER.fullmatch(f"{header}:{text}") for header, text in headers.items()):
        raise SettingsError(f'{name}: "headers" has a name or a text that cannot be sent')
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
        headers = {"Authorization": _basic(user, password)} | headers
    host = parts.netloc.rpartition("@")[2]
    return Base(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), headers)


@dataclass(frozen=True, slots=True)
class Question:
    """A request, ready to be sent again and again.

    :param headers: those of the sensor.
    :param credentials: headers that are sent to the server of this URL and to no other.
    :param sent: all headers.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    credentials: Mapping[str, str] = field(repr=False)
    origin: Origin
    target: str
    sent: Mapping[str, str] = field(repr=False)


def question(method: str, url: str, *, headers: Mapping[str, str], credentials: Mapping[str, str]) -> Question:
    """Make a request ready.

    :raises PokeFailed: when the URL is malformed, or is not HTTP.
    """
    try:
        parts = parse_url(url)
    except LocationParseError as error:
        raise PokeFailed(f"{shown_url(url)}: {one_line(error, credentials.values())}") from error
    if parts.scheme not in _PORTS or not parts.host:
        raise PokeFailed(f"{shown_url(url)}: the protocol is not http or https, or no server is named")
    sent = {name.lower(): (name, text) for name, text in [*_HEADERS.items(), *headers.items(), *credentials.items()]}
    if parts.auth:
        user, _, password = parts.auth.partition(":")
        sent["authorization"] = ("Authorization", _basic(user, password))
    port = None if parts.port == _PORTS[parts.scheme] else parts.port
    origin = Origin(parts.scheme, parts.host, port)
    return Question(method, url, dict(headers), credentials, origin, parts.request_uri, dict(sent.values()))


def ask(
    first: Question,
    *,
    timeout: float,
    wanted: int | None = None,
    follow_redirects: bool = True,
    body_if: Callable[[int], bool] | None = None,
) -> Answer:
    """Ask a server.

    :param timeout: seconds. It limits each step, and is checked between steps, so the whole takes at most twice as
        long.
    :param wanted: a status that is the answer even where it is a redirect.
    :param follow_redirects: without it, any redirect is the answer.
    :param body_if: returns whether the body of an answer with this status is wanted.
    :raises CannotPoke: when this process cannot speak HTTP.
    :raises InfraFailure: when there is no answer.
    :raises PokeFailed: when the redirects do not end, or lead to a URL that is not HTTP.
    """
    deadline, asked = time.monotonic() + timeout, first
    connections = _connections.get("", Connections)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            response = connections.ask(asked.method, asked.origin, asked.target, asked.sent, timeout)
            try:
                location = response.get_redirect_location()
                if not location or not follow_redirects or response.status == wanted:
                    return _read(response, body_if, deadline)
                _read(response, None, deadline)
                if time.monotonic() > deadline:
                    raise TimeoutError("the redirects did not end in time")
            finally:
                response.close()  # the connection, too, unless all is read
            asked = _redirected(asked, location)
    except (LocationParseError, DecodeError) as error:
        raise PokeFailed(f"{shown_url(first.url)}: {one_line(error, first.credentials.values())}") from error
    except (HTTPError, TimeoutError) as error:
        cause = error.args[-1] if error.args and isinstance(error.args[-1], Exception) else error
        said = one_line(cause, first.credentials.values())
        raise InfraFailure(f"{shown_url(first.url)}: {type(cause).__name__}: {said}") from error
    raise PokeFailed(f"{shown_url(first.url)} redirects more than {MAX_REDIRECTS} times")


def _redirected(asked: Question, location: str) -> Question:
    """Return the next question. What a connection adds does not go to another server, nor on from there."""
    try:
        url = urljoin(asked.url, _as_utf8(location))
    except ValueError:
        raise PokeFailed(f"{shown_url(asked.url)} redirects to a malformed URL") from None
    there = question(asked.method, url, headers=asked.headers, credentials=asked.credentials)
    if there.origin == asked.origin:
        return there
    headers = {name: text for name, text in asked.headers.items() if name.lower() != "host"}
    return question(asked.method, url, headers=headers, credentials={})


def _read(response: BaseHTTPResponse, body_if: Callable[[int], bool] | None, deadline: float) -> Answer:
    wanted = body_if is not None and body_if(response.status)
    limit = MAX_BODY_BYTES if wanted else MAX_UNREAD_BYTES
    body = bytearray()
    while piece := response.read1(_PIECE, decode_content=wanted):
        body += piece
        if len(body) > limit:
            break
        if time.monotonic() > deadline:
            if wanted:
                raise TimeoutError("the body did not come in time")
            break
    phrase = _as_utf8(response.reason or "")
    if not wanted:
        return Answer(response.status, phrase, response.headers)
    return Answer(response.status, phrase, response.headers, bytes(body[:limit]), len(body) <= limit)


@lru_cache(maxsize=256)
def _charset(content_type: str) -> str:
    message = Message()
    message["Content-Type"] = content_type
    try:
        name = lookup(message.get_content_charset("utf-8")).name
        b"a".decode(name, "replace")  # some codecs are for other things than text
    except (LookupError, ValueError, TypeError):
        return "utf-8"
    return name


def _as_utf8(text: str) -> str:
    """Return a text of a head, which the standard library reads as latin-1."""
    with suppress(UnicodeError):
        return text.encode("latin-1").decode()
    return text


def _basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{unquote(user)}:{unquote(password)}'.encode()).decode()}"
