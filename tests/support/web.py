"""The pages of a pool, served on loopback in a thread of the test; and a headless Chromium to look at them."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.requests import Request

from harness.until import until
from sensorpool.web.access import Denied, Reader

CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Named:
    """An access of several readers, each named by a header."""

    def __init__(self, *readers: Reader) -> None:
        self._readers = {reader.name: reader for reader in readers}

    def reader(self, request: Request) -> Reader:
        try:
            return self._readers[request.headers["x-reader"]]
        except KeyError:
            raise Denied("log in", 401) from None


@contextmanager
def served(app: object) -> Iterator[str]:
    """Serve an application; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until("the server", lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def post(client: httpx.Client, page: str, path: str) -> httpx.Response:
    """Send a form as its page does."""
    client.get(page).raise_for_status()
    return client.post(path, headers={"sec-fetch-site": "same-origin"})


def chromium() -> str | None:
    """Return the path of Chromium; None: it is not installed."""
    return shutil.which("chromium")


def needs_chromium() -> None:
    """Skip a test where there is no Chromium; fail under ``CI``."""
    if chromium() is None:
        message = "no Chromium here: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def dom_of(url: str, profile: Path, *, milliseconds: int = 12_000) -> str:
    """Return the page as Chromium has it after its scripts ran for a while (of the browser's own, virtual time)."""
    command = [chromium() or "", *CHROMIUM, f"--user-data-dir={profile}", f"--virtual-time-budget={milliseconds}"]
    found = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True)
    return found.stdout
