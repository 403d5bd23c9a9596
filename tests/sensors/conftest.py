"""Servers on the loopback interface, and connections in the environment."""

import gc
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.endpoints.file_servers import FtpServer

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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate of localhost, and its key."""
    if shutil.which("openssl") is None:
        # only root can install a Debian package, so only root's CI run is to blame for its absence
        (pytest.fail if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip)("needs openssl")
    made = tmp_path_factory.mktemp("tls") / "both.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:far.invalid"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(made)]
    done = subprocess.run([*new, *names], capture_output=True, text=True, check=True)
    made.write_text(made.read_text() + done.stdout)
    return made


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(autouse=True)
def _no_kept_filesystems() -> Iterator[None]:
    yield
    filesystems = sys.modules.get("sensorpool.sensors.filesystems")
    if filesystems is not None and filesystems._filesystems:
        filesystems._filesystems._things.clear()
        with warnings.catch_warnings(action="ignore"):  # requests and paramiko leave sockets to the garbage collector
            gc.collect()


@pytest.fixture
def set_connection(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def put(conn_id: str, value: str) -> None:
        monkeypatch.setenv(f"SENSORPOOL_CONN_{conn_id.upper()}", value)

    return put


@pytest.fixture
def ftp_server(tmp_path: Path) -> Iterator[FtpServer]:
    with FtpServer(tmp_path) as serving:
        yield serving
