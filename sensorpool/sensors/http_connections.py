"""Connections to HTTP servers, kept for the next request to the same server. The standard library speaks HTTP on them.

An idle connection holds a place on the user's server, so it is closed after a few ticks, and there are at most
`MAX_KEPT`. A request on a kept connection that the server has just closed is sent once more, on another.
"""

import re
import select
import ssl
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple

import httpx

from sensorpool.instrumentation.redaction import one_line

MAX_KEPT = 128  # in all
KEEP_IDLE_SECONDS = 15.0  # three ticks of the default length
_PIECE = 64 * 1024
_MOST_INFORMATION = 20  # answers 1xx before the answer
_PORTS = {"http": 80, "https": 443}


_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNFIT_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
Headers = list[tuple[bytes, bytes]]


def check_headers(headers: Headers) -> None:
    """Refuse headers that would break a request, without a word of their values, which may be secret.

    :raises httpx.LocalProtocolError: for such a header.
    """
    for name, value in headers:
        if not _NAME.fullmatch(name) or _UNFIT_VALUE.search(value):
            raise httpx.LocalProtocolError(f"Illegal header: {name[:40]!r}")


class NoAnswer(httpx.RemoteProtocolError):
    """The server closed the connection before the first byte of its answer."""


class Origin(NamedTuple):
    """Where a connection leads."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx.URL) -> "Origin | None":
        """Return the origin of a URL; None if it is not HTTP."""
        if url.scheme not in _PORTS:
            return None
        return cls(url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])


class _Response(HTTPResponse):
    """An answer; the library passes over the first of the answers 1xx before it, and this one over all."""

    _passed_over = 0

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status == 101 or not 100 <= status < 200:
            return version, status, reason
        self._passed_over += 1
        if self._passed_over > _MOST_INFORMATION:
            raise HTTPException("too many answers of 1xx")
        return version, 100, reason


def _check(answer: HTTPResponse) -> None:
    """Refuse what the library lets pass.

    :raises HTTPException: for an answer that is not one to our request.
    """
    if answer.status < 200:
        raise HTTPException(f"the server answered {answer.status}, which was not asked for")
    if answer.headers.defects:
        raise HTTPException("the answer has a malformed header")
    if not answer.chunked and answer.getheader("Transfer-Encoding"):
        raise HTTPException("the answer has a transfer encoding other than chunked")


class _Connection:
    """One connection, and whether it can have another request."""

    __slots__ = ("http", "idle_since", "origin", "readable")

    def __init__(self, origin: Origin, http: HTTPConnection) -> None:
        self.origin = origin
        self.http = http
        self.idle_since = 0.0
        self.readable = select.poll()
        self.readable.register(http.sock, select.POLLIN)

    @property
    def is_closed(self) -> bool:
        """Whether the server has closed it while it was idle, or has said what was not asked for."""
        return bool(self.readable.poll(0))

    def ask(self, method: str, target: str, headers: Headers, timeout: float) -> HTTPResponse:
        """Send a request; return the answer, whose body has not been read.

        :raises NoAnswer: when the server has closed the connection.
        """
        self.http.sock.settimeout(timeout)
        self.http.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            self.http.putheader(name, value)
        try:
            self.http.endheaders()
            return self.http.getresponse()
        except (ConnectionError, ssl.SSLError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error


class Connections:
    """Connections to any number of servers. Safe to share between threads; not between processes."""

    def __init__(self, make_tls: Callable[[], ssl.SSLContext]) -> None:
        self._make_tls = make_tls
        self._idle: dict[Origin, deque[_Connection]] = {}  # the latest last
        self._order: OrderedDict[_Connection, None] = OrderedDict()  # all of them, the latest last
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def ask(self, origin: Origin, method: str, target: str, headers: Headers, timeout: float) -> httpx.Response:
        """Send a request that may be repeated; return the answer, whose body has not been read. Close it.

        :param timeout: seconds, of each step.
        :raises httpx.TransportError: when there is no answer.
        :raises httpx.InvalidURL: when the host has no name that can be looked up.
        """
        if (kept := self._take(origin)) is not None:
            with suppress(NoAnswer):  # the server has just closed it
                return self._exchange(kept, method, target, headers, timeout)
        try:
            return self._exchange(self._connect(origin, timeout), method, target, headers, timeout)
        except NoAnswer as error:
            raise httpx.RemoteProtocolError(str(error)) from error

    def _exchange(
        self, connection: _Connection, method: str, target: str, headers: Headers, timeout: float
    ) -> httpx.Response:
        try:
            with _errors_of_httpx(httpx.ReadTimeout):
                answer = connection.ask(method, target, headers, timeout)
                _check(answer)
        except BaseException:
            connection.http.close()
            raise
        body = _Body(answer, connection, self)
        return httpx.Response(
            answer.status,
            headers=answer.getheaders(),
            stream=body,
            extensions={"reason_phrase": answer.reason.encode("latin-1", "replace")},
        )

    def give(self, connection: _Connection) -> None:
        """Keep a connection that has nothing to read."""
        connection.idle_since = time.monotonic()
        with self._lock:
            self._order[connection] = None
            self._idle.setdefault(connection.origin, deque()).append(connection)
            outgrown = self._oldest(connection.idle_since)
        for old in outgrown:
            old.http.close()
        if self._timer is None:
            self._wait()

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long."""
        with self._lock:
            outgrown = self._oldest(time.monotonic())
        for old in outgrown:
            old.http.close()

    def _take(self, origin: Origin) -> _Connection | None:
        while True:
            with self._lock:
                if (idle := self._idle.get(origin)) is None:
                    return None
                connection = idle.pop()
                del self._order[connection]
                if not idle:
                    del self._idle[origin]
            if time.monotonic() - connection.idle_since <= KEEP_IDLE_SECONDS and not connection.is_closed:
                return connection
            connection.http.close()

    def _oldest(self, now: float) -> list[_Connection]:
        """Take out those that are too old or too many. Under the lock."""
        taken = []
        while self._order:
            oldest = next(iter(self._order))
            if len(self._order) <= MAX_KEPT and now - oldest.idle_since <= KEEP_IDLE_SECONDS:
                break
            del self._order[oldest]
            idle = self._idle[oldest.origin]
            idle.popleft()  # the oldest of all is the oldest of its origin
            if not idle:
                del self._idle[oldest.origin]
            taken.append(oldest)
        return taken

    def _wait(self) -> None:
        with self._lock:
            if self._timer is None:
                timer = threading.Timer(KEEP_IDLE_SECONDS, self._look)
                timer.daemon = True
                # no thread can be started: the next connection that is kept tries again
                with suppress(RuntimeError):
                    timer.start()
                    self._timer = timer

    def _look(self) -> None:
        self._timer = None
        self.close_idle()
        if self._order:
            self._wait()

    def _connect(self, origin: Origin, timeout: float) -> _Connection:
        tls = self._tls if origin.scheme == "https" else None
        made: HTTPConnection
        if tls is None:
            made = HTTPConnection(origin.host, origin.port, timeout=timeout)
        else:
            made = HTTPSConnection(origin.host, origin.port, timeout=timeout, context=tls)
        made.response_class = _Response
        made.auto_open = 0  # a closed connection is not opened again behind our back
        with _errors_of_httpx(httpx.ConnectTimeout, httpx.ConnectError):
            try:
                made.connect()
            except UnicodeError as error:  # a label of the host's name is too long, or empty
                raise httpx.InvalidURL(str(error)) from error
        return _Connection(origin, made)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._make_tls()


class _Body(httpx.SyncByteStream):
    """The body of an answer; its connection is kept if all of it is read."""

    def __init__(self, answer: HTTPResponse, connection: _Connection, connections: Connections) -> None:
        self._answer = answer
        self._connection: _Connection | None = connection
        self._connections = connections

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of_httpx(httpx.ReadTimeout):
            is_empty = True
            while piece := self._answer.read1(_PIECE):
                is_empty = False
                yield piece
            if self._answer.length or (is_empty and self._may_be_cut_off):
                raise HTTPException("the server closed the connection in mid-answer")

    @property
    def _may_be_cut_off(self) -> bool:
        """Whether the body ends with the connection, though the server has not said that it closes it."""
        answer = self._answer
        return (
            answer.length is None and not answer.chunked and answer.version == 11 and not answer.getheader("Connection")
        )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._answer.length == 0:
            self._answer.close()
        if self._answer.isclosed() and not self._answer.will_close and not connection.is_closed:
            self._connections.give(connection)
        else:
            self._answer.close()
            connection.http.close()


class _errors_of_httpx:
    """Raise the errors of a socket as those of httpx, which the caller knows."""

    def __init__(
        self, timeout: type[httpx.TransportError], other: type[httpx.TransportError] = httpx.ReadError
    ) -> None:
        self._timeout = timeout
        self._other = other

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise self._timeout(str(error)) from error
        if isinstance(error, HTTPException):
            raise httpx.RemoteProtocolError(one_line(error) or type(error).__name__) from error
        if isinstance(error, OSError):
            raise self._other(str(error)) from error
