"""HTTP for sensors, by urllib3: a URL is asked, its redirects are followed, and a bounded part of a body is read.

Connections are kept for the next poke, and all of them are replaced after `KEEP_SECONDS`. So none is used that a
firewall may have dropped, and a server that has moved is found.
"""

import os
import re
import ssl
import time
from base64 import b64encode
from codecs import lookup
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import certifi
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, make_headers
from urllib3.exceptions import DecodeError, HTTPError, LocationValueError, ProtocolError
from urllib3.util import parse_url

from sensorpool.errors import CannotPoke, InfraFailure, SettingsError
from sensorpool.sensors.connections import PokeFailed, Server, connection_object, one_line, server_of, shown_url
from sensorpool.sensors.shared import Shared

MAX_REDIRECTS = 5
MAX_BODY_BYTES = 1024 * 1024
# an unwanted body is read up to here and dropped, which is cheaper than a new connection
MAX_UNREAD_BYTES = 64 * 1024
KEEP_SECONDS = 30.0
_SERVERS = 256
_CONNECTIONS = 512  # to one server: urllib3 logs a warning for each one above
_PIECE = 64 * 1024
_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",  # a small compressed body may be a large one
    "User-Agent": "sensorpool",
}
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+:[\x20-\x7e\t]*", re.ASCII)


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
        """The declared charset of the body; UTF-8 where there is none, or none of text."""
        found = _CHARSET.search(self.headers.get("Content-Type", ""))
        try:
            return lookup(found[1]).name if found and b"a".decode(found[1], "replace") else "utf-8"
        except (LookupError, ValueError):
            return "utf-8"


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
        basic = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}"} | headers
    host = parts.netloc.rpartition("@")[2]
    return Base(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), headers)


class Client:
    """Connections to any number of servers, by the proxies of the environment. Safe to share between threads.

    :raises CannotPoke: when the environment has a wrong certificate file.
    """

    def __init__(self) -> None:
        self.made = time.monotonic()
        try:
            self._tls = _tls(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        except OSError as error:
            raise CannotPoke(f"this worker cannot speak HTTP: {one_line(error)}") from error
        self._managers: dict[str | None, PoolManager] = {}
        self._by_server: dict[Server, PoolManager] = {}

    def ask(self, method: str, url: str, headers: Mapping[str, str], timeout: float) -> BaseHTTPResponse:
        """Send a request that may be repeated. Return the answer, whose body has not been read.

        :raises CannotPoke: when the environment has a wrong proxy.
        :raises HTTPError: of urllib3, when there is no answer.
        """
        manager = self._manager(url)
        named: dict[str, Any] = {"headers": headers, "timeout": timeout, "retries": False, "redirect": False}
        with suppress(ProtocolError):  # the server has just closed a connection that was kept
            return manager.urlopen(method, url, preload_content=False, **named)
        return manager.urlopen(method, url, preload_content=False, **named)

    def _manager(self, url: str) -> PoolManager:
        server = server_of(url)
        if (found := self._by_server.get(server)) is not None:
            return found
        proxy = proxy_of(server)
        if proxy not in self._managers:
            self._managers[proxy] = self._make(proxy)
        self._by_server[server] = self._managers[proxy]
        return self._managers[proxy]

    def _make(self, proxy: str | None) -> PoolManager:
        options: dict[str, Any] = {"num_pools": _SERVERS, "maxsize": _CONNECTIONS, "ssl_context": self._tls}
        if proxy is None:
            return PoolManager(**options)
        try:
            user = parse_url(proxy).auth
            headers = make_headers(proxy_basic_auth=unquote(user)) if user else None
            return ProxyManager(proxy, proxy_headers=headers, proxy_ssl_context=self._tls, **options)
        except (HTTPError, ValueError) as error:  # the worker is to blame, not the sensor
            raise CannotPoke(f"this worker cannot speak HTTP: {one_line(error)}") from error


_clients: Shared[str, Client] = Shared(1)  # one, which is replaced now and then


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    credentials: Mapping[str, str],
    timeout: float,
    wanted: int | None = None,
    follow_redirects: bool = True,
    body_if: Callable[[int], bool] | None = None,
) -> Answer:
    """Ask a server.

    :param credentials: headers of a connection. They go to the server of ``url`` and to no other.
    :param timeout: seconds. It limits each wait for the server, and is checked between the pieces of a body and
        between redirects. Only the time limit of the poke ends a head that comes byte by byte.
    :param wanted: a status that is the answer even where it is a redirect.
    :param follow_redirects: without it, any redirect is the answer.
    :param body_if: returns whether the body of an answer with this status is wanted.
    :raises CannotPoke: when this process cannot speak HTTP.
    :raises InfraFailure: when there is no answer.
    :raises PokeFailed: when the redirects do not end, or lead to a URL that is not HTTP.
    """
    deadline, asked, secrets = time.monotonic() + timeout, url, list(credentials.values())
    client = _client()
    try:
        for _ in range(MAX_REDIRECTS + 1):
            sent = {name.title(): text for each in (_HEADERS, headers, credentials) for name, text in each.items()}
            with client.ask(method, asked, sent, timeout) as response:  # closes the connection unless all is read
                location = response.get_redirect_location()
                if not location or not follow_redirects or response.status == wanted:
                    return _read(response, body_if, deadline)
                _read(response, None, deadline)
            if time.monotonic() > deadline:
                raise TimeoutError("the redirects did not end in time")
            target = urljoin(asked, location.encode("latin-1").decode("utf-8", "replace"))
            if server_of(target) != server_of(asked):  # what a connection adds does not go there, nor on from there
                credentials = {}
                headers = {name: text for name, text in headers.items() if name.lower() != "host"}
            asked = target
    except (LocationValueError, DecodeError, ValueError) as error:
        raise PokeFailed(f"{shown_url(url)}: {one_line(error, secrets)}") from error
    except (HTTPError, TimeoutError) as error:
        cause = error.args[-1] if error.args and isinstance(error.args[-1], Exception) else error
        raise InfraFailure(f"{shown_url(url)}: {type(cause).__name__}: {one_line(cause, secrets)}") from error
    raise PokeFailed(f"{shown_url(url)} redirects more than {MAX_REDIRECTS} times")


def _client() -> Client:
    client = _clients.get("", Client)
    if time.monotonic() - client.made > KEEP_SECONDS:
        _clients.drop("", client)  # its connections are closed when their last request has ended
        client = _clients.get("", Client)
    return client


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
    phrase = response.reason or ""
    if not wanted:
        return Answer(response.status, phrase, response.headers)
    return Answer(response.status, phrase, response.headers, bytes(body[:limit]), len(body) <= limit)


@lru_cache(maxsize=4)
def _tls(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return what checks certificates: by the file, or by the folder (which OpenSSL reads from the environment)."""
    return ssl.create_default_context(cafile=file or (None if folder else certifi.where()))


def proxy_of(server: Server) -> str | None:
    """Return the proxy by which the environment has a server asked, if there is one."""
    scheme, host, port = server
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # NO_PROXY may name a port
    if not proxy or proxy_bypass(address) or _is_within(host, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_within(host: str, networks: str) -> bool:
    """Whether a host is an address within a network of NO_PROXY, like 10.0.0.0/8: `proxy_bypass` knows none."""
    for network in networks.split(","):
        with suppress(ValueError):  # one of the two is a name
            if ip_address(host) in ip_network(network.strip().strip("[]"), strict=False):
                return True
    return False
