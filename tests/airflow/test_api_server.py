"""A task that resumes waits for Airflow's API server, but not without end."""

import asyncio
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

pytest.importorskip("airflow")

from harness.servers.server import LOOPBACK, free_port
from sensorpool.airflow.triggerer import api_server
from sensorpool.airflow.triggerer.api_server import ApiServer


class Health(BaseHTTPRequestHandler):
    """Answers as the API server's health page."""

    code = 200

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(self.code if self.path == "/execution/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Broken(Health):
    """Answers with an error of its own."""

    code = 503


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Health]], Callable[[], None]]:
    """Starts an API server at the configured place; returns what stops it."""
    port = free_port()
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", f"http://{LOOPBACK}:{port}/execution/")
    monkeypatch.setattr(api_server, "FRESH", 0.01)

    def start(kind: type[Health]) -> Callable[[], None]:
        server = ThreadingHTTPServer((LOOPBACK, port), kind)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop

    return start


def test_where_it_has_never_answered_nobody_is_held_back_for_long(
    serve: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "FIRST_ANSWER", 0.05)
    server, said = ApiServer(), list[str]()
    asyncio.run(asyncio.wait_for(server.available(said.append), 10))
    said.clear()
    asyncio.run(asyncio.wait_for(server.available(said.append), 10))
    assert not said


@pytest.mark.parametrize("away", [None, Broken])
def test_who_resumes_waits_until_it_is_back(
    serve: Callable[[type[Health]], Callable[[], None]], away: type[Health] | None
) -> None:
    stop, server, said = serve(Health), ApiServer(), list[str]()
    assert server.ask()
    stop()

    async def go() -> None:
        stop_broken = serve(away) if away else lambda: None
        await asyncio.sleep(0.02)
        coming = [asyncio.create_task(server.available(said.append)) for _ in range(3)]
        while len(said) < 3:
            await asyncio.sleep(0.01)
        assert not any(one.done() for one in coming)
        stop_broken()
        stop = serve(Health)
        await asyncio.wait_for(asyncio.gather(*coming), 10)
        stop()

    asyncio.run(go())
    assert len(said) == 3
    assert "does not answer" in said[0]


def test_it_is_not_waited_for_for_ever(
    serve: Callable[[type[Health]], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, server = serve(Health), ApiServer()
    server.ask()
    stop()
    monkeypatch.setattr(api_server, "AT_MOST", 0.05)
    asyncio.run(asyncio.wait_for(server.available(print), 10))
