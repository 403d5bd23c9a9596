"""A service that runs for a whole module of faults, with proxies between it and its servers."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import make_url, text

from harness import audit
from harness.service import Service
from harness.until import until
from tests.faults.proxy import Proxy
from tests.faults.trial import Record, Trial, runs


class Stand:
    """The service, its proxies, and its processes. The test itself connects to the servers directly."""

    def __init__(self, service: Service, redis: Proxy, postgres: Proxy, record: Callable[[str], Record]) -> None:
        self.service = service
        self.redis = redis
        self.postgres = postgres
        self._record = record
        self.workers: list[subprocess.Popen[bytes]] = []
        self.beats: list[subprocess.Popen[bytes]] = []

    def start(self, *, workers: int = 1) -> None:
        """Start workers and a beat, and wait for the first ticks."""
        for _ in range(workers):
            self.add_worker()
        self.beats.append(self.service.beat())
        until("the first tick of every range", self.service.is_ready)

    def add_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        worker = self.service.worker(**environment)
        self.workers.append(worker)
        return worker

    def trial(self, fault: str, **options: Any) -> Trial:
        """Begin a trial of a fault."""
        return Trial(self.service, self._record(fault), **options)

    def trials(self, fault: str, *, full: int, **options: Any) -> Iterator[Trial]:
        """Yield trials of a fault, one after the other: one trial, or so many in the full profile."""
        for _ in range(runs(full=full)):
            yield self.trial(fault, **options)

    def sql(self, *statements: str) -> None:
        """Run statements, each in its own transaction."""
        engine = self.service.pool.database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def heal(self) -> None:
        """Mend all faults before the next trial."""
        self.redis.heal()
        self.postgres.heal()


@contextmanager
def stand_on(
    folder: Path, database_url: str, redis_url: str, record: Callable[[str], Record], **settings: Any
) -> Iterator[Stand]:
    """Yield a service that connects to its servers through proxies, while the test connects directly."""
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    with Proxy(port) as redis, Proxy(make_url(database_url).port or 0) as postgres:
        service = Service(folder, database_url, redis_url, **settings)
        service.environment["SENSORPOOL_DATABASE_URL"] = postgres.url(database_url)
        service.environment["SENSORPOOL_REDIS_URL"] = redis.url(redis_url)
        service.environment["PYTHONPATH"] = os.pathsep.join(sys.path)  # so that it finds the sensors of the tests
        audit.install(service.pool.database)
        service.pool.leases.store.client.flushdb()
        stand = Stand(service, redis, postgres, record)
        try:
            yield stand
        finally:
            stand.heal()
            service.stop()
