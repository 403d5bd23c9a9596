"""The one-process service: worker and beat as threads. The embedded default."""

import logging
import os
import threading
from collections.abc import Callable
from socket import gethostname
from types import TracebackType

from celery import Celery
from celery.beat import Service
from celery.worker import WorkController
from celery.worker import state as worker_state

from sensorpool.config import __version__
from sensorpool.config.defaults import MEMORY
from sensorpool.config.origins import unknown_settings
from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.standalone_files import InFlightFiles
from sensorpool.poke.patches import refuse_patched
from sensorpool.publish.application import ignored_variables
from sensorpool.service.app import make_app
from sensorpool.service.beat import Ticks
from sensorpool.service.metrics_port import Observation
from sensorpool.service.presence import Presence, terms_of
from sensorpool.service.refusals import refuse_cluster
from sensorpool.service.runtime import Stopping
from sensorpool.service.sqlite_lock import SqliteLock
from sensorpool.store import migrate
from sensorpool.store.database import Database
from sensorpool.worker.context import Worker

JOBS_AT_ONCE = 4
_START_LIMIT = 30.0  # seconds

log = logger(__name__)


class _Ready(WorkController):
    """A Celery worker that calls a function when it is ready."""

    def __init__(self, ready: Callable[[], None], **options: object) -> None:
        self._ready = ready
        super().__init__(**options)

    def on_consumer_ready(self, consumer: object) -> None:  # noqa: ARG002  # celery's signature
        self._ready()


class Standalone:
    """A pool in this process, for as long as the context lasts.

    On threads there is no time limit of whole jobs, and a poke that holds the interpreter lock holds up everything. A
    poke that ends the process ends the service; the next one pokes it apart, until it is in quarantine. Where that
    matters, run ``celery -A sensorpool worker`` and ``beat``.

    :param stopping: is set when this process is told to end; the end of the context sets it too.
    :raises SettingsError: when its leases are in memory and another process pokes the same database, or may poke it;
        when gevent or eventlet has patched this process.
    :raises SchemaMismatch: when the database's schema does not fit (an SQLite file is upgraded automatically).
    :raises Unreachable: when the database, Redis or the broker does not answer.
    """

    def __init__(self, settings: Settings, stopping: Stopping | None = None) -> None:
        refuse_patched()
        self.settings = settings
        database = Database(settings.database_url, schema=settings.database_schema)
        self._sqlite_lock = SqliteLock(settings, database)
        if settings.database_url.startswith("sqlite"):
            migrate.upgrade(settings.database_url)
        migrate.check(database, __version__)
        for said in ignored_variables(settings):
            log.warning(said)
        for name in unknown_settings():
            log.warning("there is no such setting", setting=name)
        refuse_cluster(settings)
        terms = terms_of(settings, database)
        database.dispose()
        self.app: Celery = make_app(settings)
        self.app.sensorpool_runtime.is_one_process = True
        self._stopping = self.app.sensorpool_runtime.stopping = stopping or Stopping()
        if settings.metrics_port is not None:
            self.app.sensorpool_runtime.metrics.start()
        self._node = self.app.sensorpool_runtime.node = f"standalone@{gethostname()}"
        name = f"{self._node}/{os.getpid()}"
        self._presence = Presence(settings, self.worker.roster, name, terms, __version__)
        self._presence.enter()
        if settings.embedded:
            self._take_up()
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._controller: _Ready | None = None
        self._observation: Observation | None = None
        # a thread sleeps on when it is told to end, so it sleeps for a second at most
        self._beat = Service(self.app, max_interval=1, scheduler_cls=Ticks)
        self._threads: list[threading.Thread] = []  # the worker's, then beat's

    @property
    def worker(self) -> Worker:
        """The worker that runs the jobs."""
        worker: Worker = self.app.sensorpool_runtime.worker
        return worker

    @property
    def is_over(self) -> bool:
        """Whether the worker has ended, so that no group is poked any more."""
        return not self._threads[0].is_alive()

    def __enter__(self) -> "Standalone":
        self.app.set_default()  # on other threads Celery looks tasks up in the default application
        worker_state.should_stop = worker_state.should_terminate = None
        logging.getLogger("celery").setLevel(logging.WARNING)
        self._start("worker", self._run_worker)
        if not self._ready.wait(_START_LIMIT) or self._failure is not None:
            self.__exit__(None, None, None)
            raise Unreachable(f"the worker did not start: {self._failure or 'the broker does not answer'}")
        self._presence.queues = lambda: list(self.app.amqp.queues.consume_from)
        self._presence.keep()
        self._observe()
        self._start("beat", lambda: self._beat.start(embedded_process=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._beat.stop()
        if self._controller is not None:
            worker_state.should_stop = 0
        for thread in self._threads:
            thread.join(_START_LIMIT)
        if self._observation is not None:
            self._observation.end()
        self._presence.leave()
        self.app.sensorpool_runtime.close()
        self.app.close()
        self._sqlite_lock.end()

    def _take_up(self) -> None:
        """Take up what the last process knew of its pokes, if it died."""
        ranges = self.app.sensorpool_runtime.ranges
        if died_with := self.worker.leases.take_up(InFlightFiles(self.settings), ranges):
            log.warning("the last process of this service died while it poked", groups=died_with)

    def _observe(self) -> None:
        """Serve metrics and probes, if the settings say where."""
        if self.settings.metrics_port is not None and self._controller is not None:
            consumer = None if self.settings.broker == MEMORY else self._controller.consumer
            counted = self.app.sensorpool_runtime.metrics
            ending = self._stopping.is_set
            self._observation = Observation(self.settings, counted, self._presence, consumer, ending)
            self._observation.begin()

    def _run_worker(self) -> None:
        try:
            self._controller = _Ready(
                self._ready.set,
                app=self.app,
                pool_cls="threads",
                concurrency=min(JOBS_AT_ONCE, self.settings.shards),
                # in memory, a job is acknowledged only when the loop wakes up: with a small prefetch ranges would wait
                prefetch_multiplier=0 if self.settings.broker == MEMORY else 1,
                hostname=self._node,
                loglevel=logging.WARNING,
                logfile=None,
                without_heartbeat=True,
                without_mingle=True,
                without_gossip=True,
            )
            self._controller.start()
        except BaseException as error:
            self._failure = error
            log.exception("the worker of this process has ended")
        finally:
            self._ready.set()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
