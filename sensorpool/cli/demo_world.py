"""The conditions of the demo's sensors: files, resources of a local HTTP server and SQL rows, each made on demand."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CONN_ID = "SENSORPOOL_DEMO"  # the connection of the table's database
KINDS = ("file", "http", "sql")


class _Server(ThreadingHTTPServer):
    request_queue_size = 512  # a full queue costs a new connection a second
    daemon_threads = True


@dataclass
class Condition:
    """A condition, and the function that makes it true."""

    op_classpath: str
    poke_context: dict[str, Any]
    lands_after: float  # seconds
    make_true: Callable[[], None]
    timeout: float | None = None  # seconds
    true_at: float = 0.0
    instances: list[int] = field(default_factory=list)


class World:
    """The backends of the demo's sensors: files, an HTTP server on loopback, and a table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready: set[str] = set()
        self._gone: set[str] = set()
        (folder / "files").mkdir(parents=True)
        self._rows = folder / "rows.db"
        with self._table() as table:
            table.execute("CREATE TABLE arrived (name TEXT PRIMARY KEY)")
        ready, gone = self._ready, self._gone

        class Resource(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # keeps connections: hundreds of requests come at once

            def do_GET(self) -> None:
                self.send_response(410 if self.path in gone else 200 if self.path in ready else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = _Server(("127.0.0.1", 0), Resource)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def connection(self) -> str:
        """The URL of the table's database."""
        return f"sqlite:///{self._rows}"

    def condition(self, kind: str, number: int, lands_after: float) -> Condition:
        """Make a condition of one of `KINDS`."""
        name = f"part-{number:05d}"
        if kind == "file":
            path = self._folder / "files" / name
            return Condition("sensorpool.sensors.PathSensor", {"path": f"file://{path}"}, lands_after, path.touch)
        if kind == "http":
            return self._resource(name, lands_after, self._ready)
        context = {
            "conn_id": CONN_ID,
            "sql": "SELECT 1 FROM arrived WHERE name = :name",
            "parameters": {"name": name},
        }
        return Condition("sensorpool.sensors.SqlSensor", context, lands_after, lambda: self._insert(name))

    def withdrawn(self, after: float) -> Condition:
        """Make a condition whose resource is gone for ever after some seconds: its poke raises an error then."""
        return self._resource("withdrawn", after, self._gone)

    def forgotten(self, timeout: float) -> Condition:
        """Make a condition that never comes true, and that is waited for until a timeout in seconds."""
        path = self._folder / "files" / "forgotten"
        context = {"path": f"file://{path}"}
        return Condition("sensorpool.sensors.PathSensor", context, 0.0, lambda: None, timeout=timeout)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def _resource(self, name: str, after: float, done: set[str]) -> Condition:
        url = f"http://127.0.0.1:{self._server.server_port}/{name}"
        return Condition("sensorpool.sensors.HttpSensor", {"url": url}, after, lambda: done.add(f"/{name}"))

    def _insert(self, name: str) -> None:
        with self._table() as table:
            table.execute("INSERT INTO arrived VALUES (?)", (name,))

    @contextmanager
    def _table(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._rows, timeout=30)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
