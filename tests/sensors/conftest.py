"""Servers on the loopback interface, and connections in the environment."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .ftp import FtpServer
from .serving import Server


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture
def other_server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def set_connection(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def put(conn_id: str, value: str) -> None:
        monkeypatch.setenv(f"SENSORPOOL_CONN_{conn_id.upper()}", value)

    return put


@pytest.fixture
def ftp_server(tmp_path: Path) -> Iterator[FtpServer]:
    serving = FtpServer(tmp_path)
    yield serving
    serving.close()
