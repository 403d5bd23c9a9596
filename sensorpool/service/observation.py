"""The observation of one worker: its observer and its metrics port, made together and ended together."""

import errno
from collections.abc import Callable
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.service.metrics_server import MetricsServer
from sensorpool.service.presence import Presence
from sensorpool.service.probes import Readiness, alive_problems
from sensorpool.store.database import Database
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.observer import Observer

_TRY_EVERY = 5.0  # seconds between two attempts to listen

log = logger(__name__)


class Observation:
    """Observes and serves from `begin` to `end`.

    :param consumer: see `Readiness`.
    :param is_ending: see `Readiness`.
    """

    def __init__(
        self, settings: Settings, counted: Metrics, presence: Presence, consumer: Any, is_ending: Callable[[], bool]
    ) -> None:
        self._settings = settings
        self._counted = counted
        self._database = Database.of(settings, pool_size=1)
        leases: Leases = leases_of(settings)
        self._observer = Observer(settings, self._database, leases)
        self._readiness = Readiness(presence, self._observer, consumer, is_ending)
        self._presence = presence
        self._server: MetricsServer | None = None
        self._trying = BackgroundThread("metrics port", self._try_on)

    def begin(self) -> None:
        """Serve, and look at the pool. Call it after the forks.

        Where the address is taken, the log and the roster say so; a worker that ends may free it soon.
        """
        if not self._serve():
            self._trying.start()

    def _try_on(self) -> None:
        while not self._trying.wait(_TRY_EVERY):
            if self._serve():
                return

    def _serve(self) -> bool:
        host, port = self._settings.metrics_host, self._settings.metrics_port
        if port is None:
            return True
        try:
            self._server = MetricsServer(
                host, port, self._counted, self._observer, alive=alive_problems, ready=self._readiness.problems
            )
        except (OSError, ValueError) as error:  # Prometheus's client: the folder of its files is none
            if not self._presence.no_metrics:
                said = "no metrics: their address cannot be used; it is tried again"
                log.error(said, address=f"{host}:{port}", error=str(error))
            mend = "; give each worker of a host a METRICS_PORT of its own" if _is_taken(error) else ""
            self._presence.no_metrics = f"{host}:{port}: {error}{mend}"
            return False
        if self._presence.no_metrics:
            log.info("metrics are served now", address=f"{host}:{port}")
        self._presence.no_metrics = ""
        self._observer.start()
        return True

    def end(self) -> None:
        """Stop."""
        self._trying.close(_TRY_EVERY)
        self._observer.close()
        if self._server is not None:
            self._server.close()
        self._database.dispose()

    def leave_to_parent(self) -> None:
        """Drop the port in a fork of the worker."""
        if self._server is not None:
            self._server.leave_to_parent()


def _is_taken(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE
