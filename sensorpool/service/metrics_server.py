"""The metrics port of a worker: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes. Read-only.

No request asks a server of the pool: what is told was seen by the worker's observer, or counted by its processes.
"""

import json
import platform
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer

from sensorpool.config import __version__
from sensorpool.worker import metrics
from sensorpool.worker.figures import Figure
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.observer import Observer

_PATIENCE = 10.0  # seconds for a client to send something
_AT_ONCE = 16  # requests
_THREADS = 64
# copied for each answer, because the server adds to them
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]
_JSON = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]

Start = Callable[[str, list[tuple[str, str]]], object]
Reasons = Callable[[], list[str]]
"""Returns a line for each reason why a process is not alive, or not ready."""


class MetricsServer:
    """Serves from its making until `close`.

    :param counted: what this process counts; in a worker its children are counted as well.
    :param alive: asked for ``/healthz``.
    :param ready: asked for ``/readyz``.
    :raises OSError: when it cannot listen there.
    """

    def __init__(
        self, host: str, port: int, counted: Metrics, observer: Observer, *, alive: Reasons, ready: Reasons
    ) -> None:
        registry = CollectorRegistry()
        registry.register(metrics.collector() or counted.registry)
        registry.register(_OfWorker(observer))
        self._pages: Mapping[str, Reasons] = {"/healthz": alive, "/readyz": ready}
        self._of_prometheus = make_wsgi_app(registry)
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

        class OfFamily(_Server):
            address_family = family

        self._server = make_server(str(address[0]), port, self._answer, OfFamily, _Request)
        try:
            threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        except RuntimeError as error:
            self._server.server_close()
            raise OSError(f"no thread can be started: {error}") from None

    def close(self) -> None:
        """Stop serving, and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def leave_to_parent(self) -> None:
        """Drop the port in a fork: the parent serves, and its port is to be free once it has ended."""
        self._server.socket.close()

    def _answer(self, request: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = request.get("PATH_INFO", "")
        if path in {"/metrics", "/"}:
            answer: Iterable[bytes] = self._of_prometheus(request, start)
            return answer
        if path not in self._pages:
            start("404 Not Found", [*_TEXT])
            return [b"/metrics, /healthz and /readyz are here\n"]
        if request.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            start("405 Method Not Allowed", [*_TEXT, ("Allow", "GET, HEAD")])
            return [b"GET or HEAD\n"]
        reasons = self._pages[path]()
        start("503 Service Unavailable" if reasons else "200 OK", [*_JSON])
        return [json.dumps({"ok": not reasons, "reasons": reasons}).encode() + b"\n"]


class _Server(ThreadingWSGIServer):
    """A thread for each request. When too many are open, the oldest is hung up on: a probe waits for none of them.

    The thread of a request that is being answered goes on until it has its answer, so these are bounded too.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._open: dict[socket.socket, bool] = {}  # the oldest first; whether it was hung up on
        self._lock = threading.Lock()
        super().__init__(*arguments, **named)

    def server_bind(self) -> None:
        """Listen, and look no host's name up as the base does: a name server that is slow would hold the worker up."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            waiting = [each for each, is_hung_up_on in self._open.items() if not is_hung_up_on]
            is_full = len(self._open) >= _THREADS
            if not is_full and len(waiting) >= _AT_ONCE:
                self._open[waiting[0]] = True
                with suppress(OSError):  # its client was quicker
                    waiting[0].shutdown(socket.SHUT_RDWR)
            if not is_full:
                self._open[request] = False
        if is_full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, however its request ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


class _Request(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _OfWorker:
    """The collector of what a worker knows of itself and of the pool."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterator[Any]:
        python = platform.python_version()
        built = Figure("sensorpool_build_info", "Versions.", 1.0, {"version": __version__, "python": python})
        servers = [
            Figure("sensorpool_server_up", "Whether a server answers this worker.", not why, {"server": server})
            for server, why in self._observer.servers().items()
        ]
        families: dict[str, GaugeMetricFamily] = {}
        for name, said, value, labels in (built, *servers, *self._observer.figures()):
            family = families.setdefault(name, GaugeMetricFamily(name, said, labels=list(labels)))
            family.add_metric([str(each) for each in labels.values()], value)
        yield from families.values()
