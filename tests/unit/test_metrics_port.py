"""The metrics port: its pages, clients that misbehave, the bounds of labels; the name of a backend."""

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.until import until
from sensorpool.instrumentation import alive
from sensorpool.model.backend import backend_of
from sensorpool.model.not_landed import not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.service.metrics_port import MetricsServer
from sensorpool.worker import metrics
from sensorpool.worker.figures import Figure
from tests.support.scrapes import free_port, scrape, total, values

REASONS = ["the database has not answered for 7 s"]


class Seen:
    """What an observer has seen."""

    def servers(self) -> dict[str, str | None]:
        return {"database": None, "Redis": "away"}

    def figures(self) -> list[Figure]:
        return [
            Figure("sensorpool_deaths", "Said.", 1, {"by": "a"}),
            Figure("sensorpool_deaths", "Said.", 2, {"by": "b"}),
        ]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> metrics.Metrics:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    made = metrics.Metrics()
    made.start()
    return made


@pytest.fixture
def port(counted: metrics.Metrics) -> Iterator[int]:
    port = free_port()
    seen: Any = Seen()
    server = MetricsServer("127.0.0.1", port, counted, seen, alive=list, ready=lambda: REASONS)
    yield port
    server.close()


def get(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_its_pages(port: int) -> None:
    for _ in range(2):  # each answer has headers of its own
        assert get(port, "/healthz") == (200, b'{"ok": true, "reasons": []}\n')
        status, body = get(port, "/readyz")
        assert (status, json.loads(body)) == (503, {"ok": False, "reasons": REASONS})
    assert get(port, "/healthz", "HEAD") == (200, b"")
    assert get(port, "/healthz", "POST")[0] == 405
    assert get(port, "/metrics", "POST")[0] == 405
    assert get(port, "/secrets")[0] == 404
    assert get(port, "/")[0] == get(port, "/metrics")[0] == 200
    told = scrape(port)
    assert values(told, "sensorpool_server_up", server="Redis") == [0.0]
    assert values(told, "sensorpool_deaths", by="b") == [2.0]


def test_clients_that_send_nothing_hold_no_other_up(port: int) -> None:
    """Nor do those that send a letter now and then."""
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    for each in idle:
        each.sendall(b"G")
    for _ in range(3):
        assert get(port, "/healthz")[0] == 200
        assert get(port, "/metrics")[0] == 200
    for each in idle:
        each.close()


def test_it_listens_on_an_address_of_ipv6(counted: metrics.Metrics) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    port, seen = free_port(), Seen()
    server = MetricsServer("::1", port, counted, seen, alive=list, ready=list)  # type: ignore[arg-type]
    with socket.create_connection(("::1", port), timeout=5) as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert b"200 OK" in client.makefile("rb").read()
    server.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("::1", port), timeout=5)


def test_an_address_in_use_is_an_error(port: int, counted: metrics.Metrics) -> None:
    seen: Any = Seen()
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", port, counted, seen, alive=list, ready=list)


def test_a_process_gets_on_while_its_main_loop_comes_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert alive.gets_on()
    alive.begin("worker@host")
    try:
        assert alive.gets_on()
        alive.come_round(until=-60)
        assert not alive.gets_on()
    finally:
        alive.end()


def reports(*numbers: int) -> list[Report]:
    groups = [DueGroup(number, 1, 0, 1, 1000, 0, 0, None) for number in numbers]
    return [Report(group, 0.0, Outcome.NOT_LANDED, None, None, 0.5) for group in groups]


def test_classes_and_backends_beyond_the_bound_are_told_together(port: int, counted: metrics.Metrics) -> None:
    counted.know(lambda group_ids: [(f"c{each}", f"b{each}") if each else ("", "") for each in group_ids])
    counted.poked(reports(*range(200)))
    told = scrape(port)
    for name, label in (
        ("sensorpool_outcomes_total", "op_classpath"),
        ("sensorpool_backend_outcomes_total", "backend"),
    ):
        assert len(values(told, name)) == 51
        assert values(told, name, **{label: metrics.OTHER}) == [150.0]
        assert total(told, name) == 200.0
    assert total(told, "sensorpool_class_seconds_total") == 100.0
    assert total(told, "sensorpool_pokes_total") == 200.0


def test_the_pokes_of_a_call_are_each_in_the_bucket_of_its_length(port: int, counted: metrics.Metrics) -> None:
    many = not_landed([each.group for each in reports(*range(5))], [0.0] * 5, 0.02)
    counted.poked(reports(8, 9), [many])
    told = scrape(port)
    assert values(told, "sensorpool_poke_seconds_bucket", le="0.05") == [5.0]
    assert values(told, "sensorpool_poke_seconds_bucket", le="0.5") == [7.0]
    assert total(told, "sensorpool_poke_seconds_sum") == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("context", "backend"),
    [
        ('{"n":1}', "none"),
        ('{"aws_conn_id":"s3_prod","key":"s3://bucket/x"}', "s3_prod"),
        ('{"conn_id": "warehouse", "sql": "select \'https://a/b\'"}', "warehouse"),
        ('{"conn_id":null,"url":"https://user:secret@example.com:8443/a?token=b"}', "https://example.com:8443"),
        ('{"url":"https://user:sec\\"ret@example.com/a"}', "none"),
        ('{"url":"https://user:sec/ret@example.com/a"}', "none"),
        ('{"url":"https://user:12/34@example.com/a"}', "none"),
        ('{"url":"https://user:secret"}', "none"),
        ('{"path":"s3://bucket/key"}', "s3://bucket"),
        ('{"url":"http://[::1]:80/"}', "http://[::1]:80"),
        ('{"conn_id":"' + "x" * 300 + '"}', "x" * 60),
        ('{"text":"no :// here"}', "none"),
        ('{"conn_id":"a\\nb"}', "none"),
    ],
)
def test_the_backend_of_a_context(context: str, backend: str) -> None:
    assert backend_of(context) == backend
    assert "secret" not in backend_of(context)


def test_a_child_drops_the_port(counted: metrics.Metrics) -> None:
    port, seen = free_port(), Seen()
    server = MetricsServer("127.0.0.1", port, counted, seen, alive=list, ready=list)  # type: ignore[arg-type]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        server.leave_to_parent()
        os.write(write, b"dropped")
        time.sleep(60)
        os._exit(0)
    try:
        assert os.read(read, 10) == b"dropped"
        assert get(port, "/readyz")[0] == 200
        server.close()
        until("the port to be free", lambda: socket.create_server(("127.0.0.1", port)).close() is None)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
