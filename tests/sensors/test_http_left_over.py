"""What is left over of one answer never becomes the answer of another sensor on the same server."""

import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import WeakSet

import pytest

from harness.until import until
from sensorpool.errors import InfraFailure
from sensorpool.sensors import HttpSensor, http_client, http_connections
from sensorpool.sensors.http_answers import HttpAnswer
from sensorpool.sensors.shared import Shared

from .scripted import STALE, ScriptedServer

Start = Callable[..., ScriptedServer]

OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"Content-Length: 5\r\n\r\nfirst"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n"


@pytest.fixture(autouse=True)
def _connections_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_connections", Shared(1))
    monkeypatch.setattr(http_connections, "_open", WeakSet())


@pytest.fixture(params=["http", "https"])
def start(request: pytest.FixtureRequest, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    started: list[ScriptedServer] = []
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    def begin(first: bytes, late: bytes = b"") -> ScriptedServer:
        used = certificate if request.param == "https" else None
        started.append(ScriptedServer(first, late=late, certificate=used))
        return started[-1]

    yield begin
    for server in started:
        server.close()


def next_gets_its_own(server: ScriptedServer) -> bool:
    """Whether the next sensor gets its own answer, on a connection of its own."""
    held = HttpSensor(f"{server.url}/next", contains="own", timeout=30).poke({})
    return held and server.asked == [0, 1]


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED + b"\r\n"])
def test_an_answer_that_leaves_nothing_keeps_its_connection(start: Start, answer: bytes) -> None:
    server = start(answer)
    assert HttpSensor(f"{server.url}/", contains="first", timeout=30).poke({})
    assert HttpSensor(f"{server.url}/next", contains="own", timeout=30).poke({})
    assert server.asked == [0, 0]


@pytest.mark.parametrize(
    ("method", "status", "answer"),
    [
        ("HEAD", 200, OK + b"Content-Length: 52\r\n\r\n"),
        ("HEAD", 200, OK + b"Transfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", 200, OK + b"\r\n"),
        ("GET", 204, b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", 204, b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
        ("GET", 204, b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("GET", 304, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n"),
        ("GET", 200, OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nfirst"),
        ("GET", 200, OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n"),
        ("GET", 200, CHUNKED + b"A: b\r\n\r\n"),
        ("GET", 200, b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN),
        ("GET", 200, b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + PLAIN),
        ("GET", 200, b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nfirst"),
        ("GET", 200, b"HTTP/1.0 200 OK\r\nKeep-Alive: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("GET", 200, OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n"),
    ],
)
def test_what_may_be_followed_by_more_is_the_last_answer_of_its_connection(
    start: Start, method: str, status: int, answer: bytes
) -> None:
    server = start(answer, late=STALE)
    assert HttpSensor(f"{server.url}/", method=method, status=status, timeout=30).poke({})
    assert next_gets_its_own(server)
    assert server.late_sent.is_set()
    until("the client closes the first connection", lambda: server.has_ended(0))


def test_two_lengths_that_differ_are_no_answer(start: Start) -> None:
    server = start(OK + b"Content-Length: 5\r\nContent-Length: 57\r\n\r\nfirst", late=STALE)
    with pytest.raises(InfraFailure, match="malformed Content-Length"):
        HttpSensor(f"{server.url}/", timeout=30).poke({})
    assert next_gets_its_own(server)
    assert server.late_sent.is_set()


@pytest.mark.parametrize(
    ("method", "status", "answer"),
    [
        ("GET", 200, PLAIN),
        ("GET", 200, OK + b"Content-Length: 0\r\n\r\n"),
        ("GET", 200, CHUNKED + b"\r\n"),
        ("GET", 302, b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 5\r\n\r\nfirst"),
        ("GET", 204, b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("HEAD", 200, OK + b"Content-Length: 52\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("surplus", [STALE, b"\n"])
def test_more_than_the_answer_closes_the_connection_at_once(
    start: Start, method: str, status: int, answer: bytes, surplus: bytes
) -> None:
    server = start(answer + surplus)
    assert HttpSensor(f"{server.url}/", method=method, status=status, timeout=30).poke({})
    until("the client closes the first connection", lambda: server.has_ended(0))
    assert next_gets_its_own(server)


def test_more_than_a_redirect_is_no_answer_to_the_next_question(start: Start) -> None:
    server = start(b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 5\r\n\r\nfirst" + STALE)
    assert HttpSensor(f"{server.url}/", contains="own", timeout=30).poke({})
    assert server.asked == [0, 1]


@pytest.mark.parametrize("start", ["https"], indirect=True)
def test_more_in_the_same_record_of_tls_closes_the_connection_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    pending = ssl.SSLSocket.pending

    def spy(sock: ssl.SSLSocket) -> int:
        held.append(pending(sock))
        return held[-1]

    monkeypatch.setattr(ssl.SSLSocket, "pending", spy)
    head = OK + b"Content-Length: 8000\r\nPad: "
    first = head + b"x" * (io.DEFAULT_BUFFER_SIZE - 8000 - len(head) - 4) + b"\r\n\r\n" + b"x" * 8000
    assert len(first) == io.DEFAULT_BUFFER_SIZE  # so the reader's buffer is empty at its end
    server = start(first + STALE)
    assert HttpSensor(f"{server.url}/", timeout=30).poke({})
    assert held[-1] == len(STALE)
    until("the client closes the first connection", lambda: server.has_ended(0))
    assert next_gets_its_own(server)


@pytest.mark.parametrize("surplus", [STALE, b"HTTP/1.1 200 OK\r\n", b"\n"])
def test_a_kept_connection_on_which_something_has_come_is_not_used(start: Start, surplus: bytes) -> None:
    server = start(PLAIN)
    assert HttpSensor(f"{server.url}/", timeout=30).poke({})
    [kept] = http_connections._open
    server.send(surplus)
    until("it has come", lambda: bool(select.select([kept.sock], [], [], 0)[0]))
    assert next_gets_its_own(server)


@pytest.mark.parametrize("start", ["https"], indirect=True)
def test_a_kept_connection_on_which_tls_holds_something_is_not_used(start: Start) -> None:
    server = start(PLAIN)
    assert HttpSensor(f"{server.url}/", timeout=30).poke({})
    [kept] = http_connections._open
    sock = kept.sock
    assert isinstance(sock, ssl.SSLSocket)
    server.send(b"\n" + STALE)
    assert sock.recv(1) == b"\n"
    assert sock.pending() == len(STALE)
    assert not select.select([sock], [], [], 0)[0]
    assert next_gets_its_own(server)


@pytest.mark.parametrize("trailers", [b"A: b\r\n", b"A"])
def test_trailers_without_end_hold_no_thread(start: Start, trailers: bytes) -> None:
    server = start(CHUNKED + trailers)
    is_over = threading.Event()
    sent = [0]

    def send() -> None:
        until("it is asked", lambda: bool(server.asked))
        while not is_over.wait(0.01):
            sent[0] += 1
            try:
                server.send(trailers * 100)
            except OSError:
                return

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    began = time.monotonic()
    try:
        held = HttpSensor(f"{server.url}/", timeout=2).poke({})
    except InfraFailure:
        held = None
    took = time.monotonic() - began
    until("the client closes the connection", lambda: server.has_ended(0))
    until("more is sent", lambda: sent[0] > 0)
    is_over.set()
    sender.join()
    assert took < 4
    assert held is (True if trailers.endswith(b"\n") else None)
    assert next_gets_its_own(server)


def test_a_connection_that_is_not_kept_takes_no_place(start: Start) -> None:
    server = start(OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nfirst")
    assert HttpSensor(f"{server.url}/", timeout=30).poke({})
    assert not http_connections._open


@pytest.mark.parametrize("read", [0, 3, 5])
@pytest.mark.parametrize("answer", [PLAIN, CHUNKED + b"\r\n"])
def test_an_answer_that_was_not_read_to_its_end_has_no_clean_end(answer: bytes, read: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        theirs.sendall(answer.partition(b"first")[0] + b"first"[:read])
        got = HttpAnswer(ours, method="GET")
        got.begin()
        assert got.read1(read) == b"first"[:read]
        got.close()
        assert got.has_clean_end is (read == 5 and answer == PLAIN)  # the last chunk has not come
