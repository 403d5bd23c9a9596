"""The metrics port of a worker: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes. Read-only.

No request asks a server of the pool: what is told was seen by the worker's observer, or counted by its processes.
`Observation` makes both together, and ends them together.
"""

import json
import platform
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer

from sensorpool.config import __version__
from sensorpool.config.settings import Settings
from sensorpool.instrumentation import alive as signs_of_life
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import leases_of
from sensorpool.service.presence import Presence
from sensorpool.store.database import Database
from sensorpool.worker import metrics
from sensorpool.worker.figures import Figure
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.observer import Observer

_STUCK = "the main loop of this process does not come round"
_PATIENCE = 10.0  # seconds for a client to send something; then it is hung up on
# copied for each answer, because the server adds to them
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]
_JSON = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]

log = logger(__name__)

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


class Observation:
    """Observes and serves from `begin` to `end`.

    :param consumer: Celery's, whose connection is the one that takes jobs; None: the broker is this process's memory.
    :param is_ending: whether the worker was told to end.
    """

    def __init__(
        self, settings: Settings, counted: Metrics, presence: Presence, consumer: Any, is_ending: Callable[[], bool]
    ) -> None:
        self._settings, self._counted, self._presence = settings, counted, presence
        self._consumer, self._is_ending = consumer, is_ending
        self._database = Database.of(settings, pool_size=1)
        self._observer = Observer(settings, self._database, leases_of(settings))
        self._server: MetricsServer | None = None

    def begin(self) -> None:
        """Serve, and look at the pool. Call it after the forks.

        Where the address cannot be used, the log and the roster say so, and the worker goes on without.
        """
        host, port = self._settings.metrics_host, self._settings.metrics_port
        if port is None:
            return
        try:
            self._server = MetricsServer(
                host, port, self._counted, self._observer, alive=alive_problems, ready=self.problems
            )
        except (OSError, ValueError) as error:  # Prometheus's client: the folder of its files is none
            log.error("no metrics: their address cannot be used", address=f"{host}:{port}", error=str(error))
            mend = "; give each worker of a host a METRICS_PORT of its own"
            self._presence.no_metrics = f"{host}:{port}: {error}{mend if isinstance(error, OSError) else ''}"
            return
        self._observer.start()

    def end(self) -> None:
        """Stop."""
        self._observer.close()
        if self._server is not None:
            self._server.close()
        self._database.dispose()

    def leave_to_parent(self) -> None:
        """Drop the port in a fork of the worker."""
        if self._server is not None:
            self._server.leave_to_parent()

    def problems(self) -> list[str]:
        """Return a line for each reason why no work gets done here.

        It asks no server: what the worker saw of them in the last seconds counts.
        """
        if self._is_ending():
            return ["this worker was told to end"]
        servers = self._observer.servers()
        found = [why for why in servers.values() if why]
        if not servers:
            found.append("the servers have not been asked yet")
        if not self._presence.is_kept:
            found.append("this worker is not in the roster")
        if self._consumer is not None and not getattr(self._consumer.connection, "connected", False):
            found.append("this worker has no connection to the broker")
        return [*found, *alive_problems()]


def alive_problems() -> list[str]:
    """Return why this process should be restarted: as `health --self` of this process alone."""
    return [] if signs_of_life.gets_on() else [_STUCK]
