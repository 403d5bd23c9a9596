"""The observation of one worker: its observer and its metrics port, made together and ended together."""

from collections.abc import Callable
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.service.metrics_server import MetricsServer
from sensorpool.service.presence import Presence
from sensorpool.service.probes import Readiness, alive_problems
from sensorpool.store.database import Database
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.observer import Observer

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
        self._observer = Observer(settings, self._database, leases, presence.name)
        self._readiness = Readiness(presence, self._observer, consumer, is_ending)
        self._server: MetricsServer | None = None

    def begin(self) -> None:
        """Serve, and look at the pool. Call it after the forks; where the address is taken, the log says so."""
        host, port = self._settings.metrics_host, self._settings.metrics_port
        if port is None:
            return
        try:
            self._server = MetricsServer(
                host, port, self._counted, self._observer, alive=alive_problems, ready=self._readiness.problems
            )
        except (OSError, ValueError) as error:  # Prometheus's client: the folder of its files is none
            log.error("no metrics: their address cannot be used", address=f"{host}:{port}", error=str(error))
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
