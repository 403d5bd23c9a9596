"""Connections to HTTP servers, kept for the next request. urllib3 speaks HTTP on them.

All connections to a server are made anew after `KEEP_SECONDS`. So one that has been idle for long, and may have died
without a word, is not used, and a server that has moved is found. Any request closes what is past its time.
"""

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple, cast
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import certifi
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError

from sensorpool.errors import CannotPoke
from sensorpool.sensors.connections import one_line
from sensorpool.sensors.http_answers import HttpAnswer

MAX_POOLS = 256  # one for each server
MAX_KEPT = 128  # connections in all
KEEP_SECONDS = 30.0
_PLACES = 512  # of a pool; urllib3 logs a warning for each connection above
_NO_RETRIES = urllib3.Retry(False, redirect=False)

_open: "WeakSet[HttpConnection]" = WeakSet()
os.register_at_fork(after_in_child=_open.clear)  # they are the parent's


class _ClosedMeanwhile(ConnectionResetError):
    """The server closed a kept connection before it answered."""


class _Response(urllib3.HTTPResponse):
    """An answer as urllib3 hands it out. It gives its connection back when it has been read, or closes it."""

    def release_conn(self) -> None:
        if isinstance(self.connection, HttpConnection) and not self.connection.may_be_kept:
            self.connection.close()
        super().release_conn()


class HttpConnection(HTTPConnection):
    """A connection that is counted, is kept only where nothing is left over, and tells a close by the server."""

    response_class = HttpAnswer
    _answer: HttpAnswer | None = None  # the last one on this connection

    def connect(self) -> None:
        """Connect, and count."""
        self._answer = None
        super().connect()
        _open.add(self)

    def close(self) -> None:
        """Close; it may be connected again."""
        _open.discard(self)
        super().close()

    @property
    def may_be_kept(self) -> bool:
        """Whether the last answer is at its end for certain, and there is a place."""
        is_at_end = self._answer is not None and self._answer.has_clean_end
        return is_at_end and not _has_decrypted(self.sock) and len(_open) <= MAX_KEPT

    @property
    def is_connected(self) -> bool:
        """Whether the server has neither closed it nor sent anything since the last answer."""
        return super().is_connected and not _has_decrypted(self.sock)

    def getresponse(self) -> Any:
        """Return the answer to the last request."""
        self.sock.settimeout(self.timeout)
        try:
            # that of urllib3 logs a warning for some answers that are well-formed
            answer = cast(HttpAnswer, http.client.HTTPConnection.getresponse(self))
        except ConnectionError as error:
            if self._answer is not None:
                raise _ClosedMeanwhile(str(error)) from error
            raise
        self._answer = answer
        return _Response(
            body=answer,
            headers=urllib3.HTTPHeaderDict(answer.headers.items()),
            status=answer.status,
            version=answer.version,
            reason=answer.reason,
            preload_content=False,
            original_response=answer,
            request_method=answer.method,
        )


def _has_decrypted(sock: socket.socket | None) -> bool:
    """Whether TLS holds bytes that no look at the connection shows."""
    if isinstance(sock, ssl.SSLSocket):
        return sock.pending() > 0
    return not isinstance(sock, socket.socket)  # TLS in the TLS of a proxy does not tell


class HttpsConnection(HttpConnection, HTTPSConnection):
    """The same with TLS."""


class HttpPool(urllib3.HTTPConnectionPool):
    """The connections to one server."""

    ConnectionCls = HttpConnection


class HttpsPool(urllib3.HTTPSConnectionPool):
    """The same with TLS."""

    ConnectionCls = HttpsConnection


class Origin(NamedTuple):
    """Where a connection leads; without a port it is the one of the scheme."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port else "")


class Connections:
    """Connections to any number of servers, by the proxies of the environment. Safe to share between threads."""

    def __init__(self) -> None:
        self._pools: dict[Origin, tuple[float, urllib3.HTTPConnectionPool]] = {}  # with its end; the oldest first
        self._first_end = 0.0  # the end of the oldest
        self._lock = threading.Lock()

    def ask(
        self, method: str, origin: Origin, target: str, headers: Mapping[str, str], timeout: float
    ) -> urllib3.BaseHTTPResponse:
        """Send a request that may be repeated; return the answer, whose body has not been read.

        :param timeout: seconds, of each step.
        :raises CannotPoke: when the environment has a wrong proxy or certificate file.
        :raises HTTPError: of urllib3, when there is no answer.
        """
        pool = self._pool(origin)
        if pool.proxy is not None and origin.scheme == "http":
            target = f"{origin}{target}"
        try:
            return _send(pool, method, target, headers, timeout)
        except ProtocolError as error:
            if not isinstance(error.args[-1], _ClosedMeanwhile):
                raise
        return _send(pool, method, target, headers, timeout)

    def _pool(self, origin: Origin) -> urllib3.HTTPConnectionPool:
        now = time.monotonic()
        if now < self._first_end and (found := self._pools.get(origin)):
            return found[1]
        with self._lock:
            for oldest, (end, _) in list(self._pools.items()):
                if now < end:
                    break
                del self._pools[oldest]  # closes its connections when its last request has ended
            if origin not in self._pools:
                if len(self._pools) >= MAX_POOLS:
                    del self._pools[next(iter(self._pools))]
                self._pools[origin] = now + KEEP_SECONDS, self._make(origin)
            self._first_end = next(iter(self._pools.values()))[0]
            return self._pools[origin][1]

    def _make(self, origin: Origin) -> urllib3.HTTPConnectionPool:
        try:
            proxy = _proxy(origin)
            manager = urllib3.PoolManager() if proxy is None else self._proxy_manager(proxy)
            manager.pool_classes_by_scheme = {"http": HttpPool, "https": HttpsPool}
            more: dict[str, Any] = {"maxsize": _PLACES}
            if "https" in (origin.scheme, manager.proxy and manager.proxy.scheme):
                more["ssl_context"] = self._tls
            return manager.connection_from_host(origin.host, origin.port, origin.scheme, pool_kwargs=more)
        except (HTTPError, ValueError, OSError) as error:
            # a proxy or a certificate file of the environment is wrong: the worker is to blame, not the sensor
            raise CannotPoke(f"this worker cannot speak HTTP: {one_line(error)}") from error

    def _proxy_manager(self, proxy: str) -> urllib3.ProxyManager:
        user = urllib3.util.parse_url(proxy).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(user)) if user else None
        tls = self._tls if proxy.startswith("https:") else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, proxy_ssl_context=tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
        if not file and not folder:
            file = certifi.where()
        context = ssl.create_default_context(cafile=file or None, capath=None if file else folder)
        context.set_alpn_protocols(["http/1.1"])
        return context


def _send(
    pool: urllib3.HTTPConnectionPool, method: str, target: str, headers: Mapping[str, str], timeout: float
) -> urllib3.BaseHTTPResponse:
    return pool.urlopen(
        method,
        target,
        headers=headers,
        retries=_NO_RETRIES,
        redirect=False,
        assert_same_host=False,
        timeout=timeout,
        preload_content=False,
    )


def _proxy(origin: Origin) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(origin.scheme) or proxies.get("all")
    host = origin.host.strip("[]")
    if not proxy or proxy_bypass(host) or _is_within(host, proxies.get("no", "")):
        return None
    if origin.port and proxy_bypass(f"{origin.host}:{origin.port}"):  # NO_PROXY may name a port
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_within(host: str, networks: str) -> bool:
    """Whether a host is an address within a network of NO_PROXY, like 10.0.0.0/8: `proxy_bypass` knows none."""
    for network in networks.split(","):
        with suppress(ValueError):  # one of the two is a name
            if ip_address(host) in ip_network(network.strip().strip("[]"), strict=False):
                return True
    return False
