"""HttpSensor, against servers on the loopback interface."""

import json
import os
import socket
import struct
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from sensorpool.errors import CannotPoke, InfraFailure, SettingsError
from sensorpool.sensors import HttpSensor, http_client
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.shared import Shared

from .serving import Server, answer

SetConnection = Callable[[str, str], None]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("status", "holds"), [(200, True), (204, True), (299, True), (304, False), (404, False), (300, False)]
)
def test_holds_on_2xx_and_404_is_not_yet(server: Server, method: str, status: int, holds: bool) -> None:
    server.at["/"] = answer(status)
    assert HttpSensor(f"{server.url}/", method=method).poke({}) is holds
    assert server.asked[0][0] == method


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_an_infra_failure(server: Server, status: int) -> None:
    server.at["/?token=hunter2"] = answer(status)
    with pytest.raises(InfraFailure, match=f"{status}") as caught:
        HttpSensor(f"{server.url}/?token=hunter2").poke({})
    assert caught.value.is_infra_failure
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("status", "phrase"), [(400, "Bad Request"), (403, "Forbidden"), (500, "Internal")])
def test_other_statuses_are_errors(server: Server, status: int, phrase: str) -> None:
    server.at["/"] = answer(status)
    with pytest.raises(PokeFailed, match=rf"127\.0\.0\.1:\d+/ answered {status} {phrase}") as caught:
        HttpSensor(f"{server.url}/").poke({})
    assert not getattr(caught.value, "is_infra_failure", False)


def test_what_a_subclass_changes_between_two_pokes_is_asked(server: Server) -> None:
    class Counting(HttpSensor):
        def poke(self, context: Any = None) -> bool:
            assert self.headers is not None
            self.headers["X-Poke"] = str(int(self.headers["X-Poke"]) + 1)
            if self.headers["X-Poke"] == "3":
                self.headers, self.method, self.url = {"X-Other": "a"}, "HEAD", f"{server.url}/other"
            return super().poke(context)

    server.at["/"] = server.at["/other"] = answer(404)
    sensor = Counting(f"{server.url}/", headers={"X-Poke": "0"})
    for _ in range(3):
        assert sensor.poke({}) is False
    assert [asked[2].get("x-poke") for asked in server.asked] == ["1", "2", None]
    assert server.asked[2][:2] == ("HEAD", "/other")
    assert server.asked[2][2]["x-other"] == "a"


def test_waits_for_one_status(server: Server) -> None:
    sensor = HttpSensor(f"{server.url}/", status=200)
    for status, holds in [(202, False), (404, False), (200, True)]:
        server.at["/"] = answer(status)
        assert sensor.poke({}) is holds
    for status in (404, 503):
        server.at["/"] = answer(status)
        assert HttpSensor(f"{server.url}/", status=status).poke({})


@pytest.mark.parametrize(("body", "holds"), [("Zustand: grün".encode(), True), (b"Zustand: rot", False), (b"", False)])
def test_waits_for_a_text(server: Server, body: bytes, holds: bool) -> None:
    server.at["/"] = answer(200, body)
    assert HttpSensor(f"{server.url}/", contains="grün").poke({}) is holds


@pytest.mark.parametrize("charset", ["iso-8859-1", "no-such-charset", "hex", "idna", "undefined", "a; charset*0*=b"])
def test_reads_a_text_in_its_charset(server: Server, charset: str) -> None:
    body = "grün".encode("iso-8859-1" if charset == "iso-8859-1" else "utf-8")
    server.at["/"] = answer(200, body, Content_Type=f"text/plain; charset={charset}")
    assert HttpSensor(f"{server.url}/", contains="grün").poke({})


@pytest.mark.parametrize(
    ("document", "pointer", "value", "holds"),
    [
        ({"state": "done"}, "/state", "done", True),
        ({"state": "running"}, "/state", "done", False),
        ({}, "/state", "done", False),
        ({"jobs": [{"state": "done"}]}, "/jobs/0/state", "done", True),
        ({"jobs": []}, "/jobs/0/state", "done", False),
        ({"jobs": [1]}, "/jobs/-1", 1, False),
        ({"jobs": [1]}, "/jobs/²", 1, False),
        ({"a/b": {"c~d": 1}}, "/a~1b/c~0d", 1, True),
        ({"": 1}, "/", 1, True),
        (5, "", 5, True),
        ({"state": "done"}, "/state/x", None, False),
        ({"ready": True}, "/ready", None, True),
        ({"ready": False}, "/ready", None, False),
        ({"ready": False}, "/ready", False, True),
        ({"ready": 1}, "/ready", True, False),
        ({"ready": None}, "/ready", None, False),
        ({"n": 3.0}, "/n", 3, True),
        ({"s": {"done": True}}, "/s", {"done": 1}, False),
        ({"s": {"done": 1}}, "/s", {"done": True}, False),
        ({"s": {"done": True}}, "/s", {"done": True}, True),
        ({"s": [{"done": [0]}]}, "/s", [{"done": [False]}], False),
        ({"s": [{"done": [0, 1]}]}, "/s", [{"done": [0.0, 1.0]}], True),
        ({"s": [True]}, "", {"s": [1]}, False),
        ({"s": [1, 2]}, "/s", [1], False),
        ({"s": [2, 1]}, "/s", [1, 2], False),
        ({"s": {"a": 1, "b": 2}}, "/s", {"b": 2, "a": 1}, True),
        ({"s": {"a": 1}}, "/s", {"a": 1, "b": None}, False),
        ({"s": []}, "/s", {}, False),
        ({"s": []}, "/s", [], True),
    ],
)
def test_waits_for_a_value(server: Server, document: Any, pointer: str, value: Any, holds: bool) -> None:
    server.at["/"] = answer(200, json.dumps(document).encode())
    assert HttpSensor(f"{server.url}/", json_pointer=pointer, json_value=value).poke({}) is holds


@pytest.mark.parametrize("body", [b"<html>", b"", b"[" * 200_000, b"\xff\xfe\xfd"])
def test_a_body_that_is_no_json_is_an_error(server: Server, body: bytes) -> None:
    server.at["/"] = answer(200, body)
    with pytest.raises(PokeFailed, match="not JSON"):
        HttpSensor(f"{server.url}/", json_pointer="/a").poke({})


def endless(start: bytes, server: Server) -> Callable[[BaseHTTPRequestHandler], None]:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        chunk = start + b"x" * (65536 - len(start))
        while not server.closing.is_set():
            request.wfile.write(b"10000\r\n" + chunk + b"\r\n")

    return respond


def test_never_reads_an_endless_body_to_its_end(server: Server) -> None:
    server.at["/"] = endless(b"ready", server)
    assert HttpSensor(f"{server.url}/").poke({})
    assert HttpSensor(f"{server.url}/", contains="ready").poke({})
    for asked in ({"contains": "never"}, {"json_pointer": "/a"}):
        with pytest.raises(PokeFailed, match="more than 1 MiB"):
            HttpSensor(f"{server.url}/", **asked).poke({})  # type: ignore[arg-type]


def test_a_body_that_never_comes_is_an_infra_failure(server: Server) -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "10")
        request.end_headers()
        request.wfile.write(b"half ")
        server.closing.wait()

    server.at["/"] = respond
    with pytest.raises(InfraFailure, match="ReadTimeout"):
        HttpSensor(f"{server.url}/", contains="whole", timeout=0.1).poke({})


def test_a_body_that_comes_in_drops_is_not_waited_for(server: Server) -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        while not server.closing.wait(0.01):
            request.wfile.write(b".")

    server.at["/"] = respond
    with pytest.raises(InfraFailure, match="did not come in time"):
        HttpSensor(f"{server.url}/", contains="whole", timeout=0.2).poke({})
    assert HttpSensor(f"{server.url}/", timeout=0.2).poke({})


def test_no_answer_is_an_infra_failure(server: Server) -> None:
    server.at["/silent"] = lambda request: server.closing.wait() and None
    with pytest.raises(InfraFailure, match="ReadTimeout"):
        HttpSensor(f"{server.url}/silent", timeout=0.1).poke({})

    def reset(request: BaseHTTPRequestHandler) -> None:
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.close_connection = True

    server.at["/reset"] = reset
    with pytest.raises(InfraFailure, match=r"RemoteDisconnected|ConnectionResetError"):
        HttpSensor(f"{server.url}/reset").poke({})
    with pytest.raises(InfraFailure, match="NewConnectionError"):
        HttpSensor(f"http://127.0.0.1:{free_port()}/").poke({})
    with pytest.raises(InfraFailure, match="NameResolutionError"):
        HttpSensor("http://no-such-host.invalid/").poke({})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_that_is_waited_for_is_not_followed(server: Server, status: int) -> None:
    server.at["/ready"] = answer(404)
    sensor = HttpSensor(f"{server.url}/ready", status=status)
    assert sensor.poke({}) is False
    server.at["/ready"] = answer(status, b"it is there", Location="/there")
    server.at["/there"] = answer(200)
    assert sensor.poke({}) is True
    assert HttpSensor(f"{server.url}/ready", status=status, contains="is there").poke({}) is True
    assert {path for _, path, _ in server.asked} == {"/ready"}
    server.at["/first"] = answer(301 if status != 301 else 302, Location="/ready")
    assert HttpSensor(f"{server.url}/first", status=status).poke({}) is True
    assert HttpSensor(f"{server.url}/ready").poke({}) is True
    assert server.asked[-1][1] == "/there"


def test_follows_a_few_redirects(server: Server) -> None:
    for step in range(6):
        server.at[f"/{step}"] = answer(302, b"moved", Location=f"/{step + 1}")
    server.at["/6"] = answer(200, b"here")
    assert HttpSensor(f"{server.url}/1", contains="here").poke({})
    with pytest.raises(PokeFailed, match="redirects more than 5 times"):
        HttpSensor(f"{server.url}/0").poke({})
    server.at["/file"] = answer(302, Location="file:///etc/passwd")
    with pytest.raises(PokeFailed, match="No host"):
        HttpSensor(f"{server.url}/file").poke({})


def test_keeps_connections_and_no_cookies(server: Server) -> None:
    server.at["/"] = answer(200, b"x" * 1000, Set_Cookie="session=hunter2")
    sensor = HttpSensor(f"{server.url}/", headers={"X-Team": "ice"})
    for _ in range(5):
        assert sensor.poke({})
    assert server.connections == 1
    assert all("cookie" not in headers for _, _, headers in server.asked)
    assert all(headers["x-team"] == "ice" for _, _, headers in server.asked)


def test_a_connection_has_the_base_and_the_credentials(server: Server, set_connection: SetConnection) -> None:
    server.at["/api/job?id=1"] = answer(200)
    sensor = HttpSensor("/job?id=1", conn_id="api", headers={"X-Key": "mine"})
    set_connection("api", f"http://me:p%40ss@127.0.0.1:{server.port}/api/")
    assert sensor.poke({})
    assert server.asked[-1][2]["authorization"] == "Basic bWU6cEBzcw=="
    set_connection("api", json.dumps({"base_url": f"{server.url}/api", "headers": {"x-key": "theirs"}}))
    assert sensor.poke({})
    assert server.asked[-1][2]["x-key"] == "theirs"
    assert "authorization" not in server.asked[-1][2]


def test_credentials_do_not_follow_to_another_server(
    server: Server, other_server: Server, set_connection: SetConnection
) -> None:
    headers = {"Authorization": "Bearer hunter2", "X-Api-Key": "hunter3"}
    set_connection("api", json.dumps({"base_url": server.url, "headers": headers}))
    server.at["/here"] = answer(302, Location="/there")
    server.at["/there"] = answer(302, Location=f"{other_server.url}/")
    other_server.at["/"] = answer(200)
    assert HttpSensor("/here", conn_id="api", headers={"X-Team": "ice"}).poke({})
    assert [asked[2]["x-api-key"] for asked in server.asked] == ["hunter3", "hunter3"]
    assert "hunter" not in str(other_server.asked)
    assert other_server.asked[0][2]["x-team"] == "ice"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hunter2", "base URL"),
        ("ftp://u:hunter2@h/", "base URL"),
        ("http://u:hunter2@h:port/", "base URL"),
        ("http://u:hunter2@h/?a=hunter2", "ends with its path"),
        ('{"base_url": "hunter2"}', "base URL"),
        ('{"base_url": "http://h", "headers": {"A": ["hunter2"]}}', "headers"),
        ('{"hunter2', "not a JSON object"),
    ],
)
def test_a_malformed_connection_is_named_but_not_shown(set_connection: SetConnection, value: str, said: str) -> None:
    set_connection("api", value)
    with pytest.raises(SettingsError, match=f"SENSORPOOL_CONN_API.*{said}") as caught:
        HttpSensor("/", conn_id="api").poke({})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("proxy", ["no-proxy://of.ours", "socks5://me:hunter2@127.0.0.1:1080"])
def test_a_worker_that_cannot_speak_http_leaves_it_to_others(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setattr(http_client, "_clients", Shared(1))
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(CannotPoke, match=r"this worker cannot speak HTTP: .*scheme") as caught:
        HttpSensor("http://127.0.0.1:9/").poke({})
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_forked_child_has_its_own_client(server: Server) -> None:
    server.at["/"] = answer(200)
    sensor = HttpSensor(f"{server.url}/")
    assert sensor.poke({})
    child = os.fork()
    if not child:
        held = False
        try:
            held = sensor.poke({})
        finally:
            os._exit(0 if held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.connections == 2
    assert sensor.poke({})
    assert server.connections == 2


U = "http://127.0.0.1/"


@pytest.mark.parametrize(
    ("context", "error", "said"),
    [
        ({"url": 5}, TypeError, "url is a string"),
        ({"url": ""}, ValueError, "url is empty"),
        ({"url": "ftp://host/"}, ValueError, "begins with http"),
        ({"url": "host/path"}, ValueError, "begins with http"),
        ({"url": "/path"}, ValueError, "when there is a conn_id"),
        ({"url": "http://"}, ValueError, "names no server"),
        ({"url": "http://host:99999/"}, ValueError, "malformed"),
        ({"url": "http://[::1/"}, ValueError, "malformed"),
        ({"url": "http://me:hunter2@host/"}, ValueError, "move it to a connection"),
        ({"url": "http://host/a b"}, ValueError, "space"),
        ({"url": "http://host/\r\nX: y"}, ValueError, "control character"),
        ({"url": U, "conn_id": "api"}, ValueError, "url is a path"),
        ({"url": "//evil", "conn_id": "a.b"}, ValueError, "names a connection"),
        ({"url": U, "method": "POST"}, ValueError, "GET or HEAD"),
        ({"url": U, "method": None}, ValueError, "GET or HEAD"),
        ({"url": U, "status": 99}, ValueError, "from 100 to 599"),
        ({"url": U, "status": "200"}, TypeError, "whole number"),
        ({"url": U, "status": True}, TypeError, "whole number"),
        ({"url": U, "contains": ""}, ValueError, "at least one character"),
        ({"url": U, "json_pointer": "state"}, ValueError, "RFC 6901"),
        ({"url": U, "json_pointer": "/a~2"}, ValueError, "RFC 6901"),
        ({"url": U, "json_pointer": 1}, TypeError, "is a string"),
        ({"url": U, "json_value": 1}, ValueError, "needs json_pointer"),
        ({"url": U, "method": "HEAD", "contains": "x"}, ValueError, "no body"),
        ({"url": U, "headers": []}, TypeError, "headers is an object"),
        ({"url": U, "headers": {"A b": "c"}}, ValueError, "no name of a header"),
        ({"url": U, "headers": {"A": "b\r\nC: d"}}, ValueError, "no printable"),
        ({"url": U, "headers": {"A": 1}}, ValueError, "no printable"),
        ({"url": U, "headers": {"AUTHORIZATION": "hunter2"}}, ValueError, "move it to a connection"),
        ({"url": U, "headers": {"Cookie": "hunter2"}}, ValueError, "move it to a connection"),
        ({"url": U, "headers": {"X-Api-Key": "hunter2"}}, ValueError, "move it to a connection"),
        ({"url": U, "timeout": 0}, ValueError, "above 0"),
        ({"url": U, "timeout": -1}, ValueError, "from 0 up"),
        ({"url": U, "timeout": float("nan")}, ValueError, "from 0 up"),
        ({"url": U, "timeout": "5"}, TypeError, "number of seconds"),
    ],
)
def test_refuses(context: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        HttpSensor(**context)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
