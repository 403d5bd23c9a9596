"""The connections of HTTP sensors, against servers that answer byte by byte as a test says."""

import gzip
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest

from harness.until import until
from sensorpool.errors import InfraFailure, SettingsError
from sensorpool.sensors import HttpSensor, http_client
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.shared import Shared

from .serving import Server, answer

NO = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
YES = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready"


class Listener:
    """A server that answers each request of a connection with the next of the given bytes, then closes it.

    An answer of None is no answer: the connection is closed when the request has come.
    """

    def __init__(self, *connections: list[bytes | None]) -> None:
        self.accepted = 0
        self.asked: list[bytes] = []
        self.ended = 0
        self._connections = list(connections)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        for answers in self._connections:
            try:
                connection = self._listening.accept()[0]
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(connection, answers), daemon=True).start()

    def _serve(self, connection: socket.socket, answers: list[bytes | None]) -> None:
        with connection:
            for answer in answers:
                asked = connection.recv(65536)
                if not asked:
                    break
                self.asked.append(asked)
                if answer is None:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                connection.sendall(answer)
        self.ended += 1


Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    made: list[Listener] = []

    def start(*connections: list[bytes | None]) -> Listener:
        made.append(Listener(*connections))
        return made[-1]

    yield start
    for listener in made:
        listener.close()


@pytest.fixture(autouse=True)
def _connections_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_clients", Shared(1))


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        (YES, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2;a=b\r\ndy\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + YES, True),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n  folded\r\nContent-Length: 5\r\n\r\nready", True),
        (b"HTTP/1.1 200 OK\r\n\r\nready", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nready", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nready", False),
    ],
)
def test_reads_each_form_of_an_answer(
    listen: Listen, answer: bytes, is_kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = listen([answer, NO] if is_kept else [answer], [NO])
    sensor = HttpSensor(server.url, contains="ready")
    assert sensor.poke({}) is True
    assert sensor.poke({}) is False
    assert server.accepted == (1 if is_kept else 2)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("status", [204, 304, 404])
def test_an_answer_to_head_has_no_body(listen: Listen, status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status
    server = listen([answer, answer])
    sensor = HttpSensor(server.url, method="HEAD", status=status)
    assert sensor.poke({})
    assert sensor.poke({})
    assert server.asked[0].startswith(b"HEAD / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nready",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nready",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nready\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nready",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
    ],
)
def test_what_is_no_answer_is_an_infra_failure(listen: Listen, answer: bytes) -> None:
    with pytest.raises(InfraFailure):
        HttpSensor(listen([answer], [answer]).url, contains="ready").poke({})


@pytest.mark.parametrize("answer", [YES, b"HTTP/1.1 204 No Content\r\n\r\n"])
def test_more_than_an_answer_is_no_answer_to_the_next_question(listen: Listen, answer: bytes) -> None:
    server = listen([answer + YES, NO], [NO])
    assert HttpSensor(server.url).poke({}) is True
    assert HttpSensor(f"{server.url}next", contains="ready").poke({}) is False


def test_what_comes_after_an_answer_is_no_answer_to_the_next_question(server: Server) -> None:
    sent = threading.Event()

    def answer_twice(request: BaseHTTPRequestHandler) -> None:
        answer(200, b"x")(request)
        request.wfile.flush()
        threading.Timer(0.2, lambda: (request.connection.sendall(YES), sent.set())).start()

    server.at["/"], server.at["/next"] = answer_twice, answer(404)
    assert HttpSensor(f"{server.url}/").poke({}) is True
    assert sent.wait(30)
    assert HttpSensor(f"{server.url}/next", contains="ready").poke({}) is False
    assert server.connections == 2


def test_redirects_are_not_followed_for_long(server: Server) -> None:
    def redirect(request: BaseHTTPRequestHandler) -> None:
        server.closing.wait(0.6)
        answer(302, Location="/")(request)

    server.at["/"] = redirect
    with pytest.raises(InfraFailure, match="redirects did not end in time"):
        HttpSensor(f"{server.url}/", timeout=1).poke({})
    assert len(server.asked) <= 2


def test_a_compressed_body_is_read_all_the_same(listen: Listen) -> None:
    body = gzip.compress(b"it is ready")
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert HttpSensor(listen([answer]).url, contains="ready").poke({})
    bomb = gzip.compress(b"x" * 50_000_000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(bomb), bomb)
    with pytest.raises(PokeFailed, match="more than 1 MiB"):
        HttpSensor(listen([answer]).url, contains="ready").poke({})


def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used(listen: Listen) -> None:
    server = listen([NO], [NO])
    sensor = HttpSensor(server.url)
    assert sensor.poke({}) is False
    until("the server closes", lambda: server.ended == 1)
    assert sensor.poke({}) is False
    assert server.accepted == 2


def test_a_request_is_sent_once_more_when_the_server_closes_a_kept_connection(listen: Listen) -> None:
    server = listen([NO, None], [YES])
    sensor = HttpSensor(server.url)
    assert sensor.poke({}) is False
    assert sensor.poke({}) is True
    assert len(server.asked) == 3


def test_connections_are_made_anew_after_a_while(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEP_SECONDS", 0.0)
    servers = [listen([NO, NO], [NO, NO]) for _ in range(2)]
    for _ in range(2):
        assert HttpSensor(servers[0].url).poke({}) is False
    assert servers[0].accepted == 2
    assert HttpSensor(servers[1].url).poke({}) is False
    until("what is idle is closed by a poke of any other server", lambda: servers[0].ended == 2)


def test_many_threads_ask_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEP_SECONDS", 3600.0)
    server.at["/"] = answer(200, b"ready")
    sensor = HttpSensor(f"{server.url}/", contains="ready", timeout=60)
    together = threading.Barrier(64, timeout=60)

    def poke(_: int) -> bool:
        together.wait()
        return all(sensor.poke({}) for _ in range(20))

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(poke, range(64)))
    assert server.connections <= 64


def test_a_host_without_a_possible_name_is_an_error_of_the_sensor() -> None:
    with pytest.raises(PokeFailed):
        HttpSensor(f"http://{'a' * 70}.example/").poke({})


@pytest.mark.parametrize("header", ['"X-Key": "hunter2\\r\\nB: c"', '"X-Key": "hunter2ü"', '"X Key": "hunter2"'])
def test_a_header_of_a_connection_cannot_add_another(monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    monkeypatch.setenv("SENSORPOOL_CONN_API", f'{{"base_url": "http://127.0.0.1:9", "headers": {{{header}}}}}')
    with pytest.raises(SettingsError, match="cannot be sent") as caught:
        HttpSensor("/", conn_id="api").poke({})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://", PokeFailed),
        ("http://[::1/", PokeFailed),
        ("http://a:b/", PokeFailed),
        ("mailto:me@example.org", PokeFailed),
        (f"http://{'a' * 70}.example/", PokeFailed),
        ("http://127.0.0.1:1/", InfraFailure),
    ],
)
def test_a_redirect_that_leads_nowhere(server: Server, location: str, error: type[Exception]) -> None:
    server.at["/"] = answer(302, Location=location)
    with pytest.raises(error):
        HttpSensor(f"{server.url}/").poke({})


def test_a_redirect_is_read_as_a_browser_reads_it(server: Server, other_server: Server) -> None:
    server.at["/"] = answer(302, Location="/gr\u00c3\u00bcn a?b=c d#e")  # UTF-8, as it comes over the wire
    server.at["/gr%C3%BCn%20a?b=c%20d"] = answer(302, Location=f"//127.0.0.1:{other_server.port}/x")
    other_server.at["/x"] = answer(200)
    assert HttpSensor(f"{server.url}/", headers={"Host": "here"}).poke({})
    assert server.asked[-1][2]["host"] == "here"
    assert other_server.asked[-1][2]["host"] == f"127.0.0.1:{other_server.port}"
