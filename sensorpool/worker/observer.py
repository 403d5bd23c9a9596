"""Looks at the pool and its servers every few seconds, on a thread, so that a scrape or a probe asks no server itself.

Each worker looks whether its servers answer, and asks for the figures of the pool: the more workers, the less often, so
that the database is asked as often as by one. All workers tell the same, so Prometheus reads the figures by ``max()``.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.leases.lease import Leases
from sensorpool.store.database import Database
from sensorpool.worker.figures import Figure, Figures

Answer = TypeVar("Answer")

EVERY = 5.0  # seconds between two looks of all workers together
_SHARE = 50  # looking takes at most one part in so many of the time
_SELDOM = 60.0  # seconds between two looks at most
_SILENT = 20.0  # seconds after which a server that was asked and has not answered counts as away
_CLOSING = 1.0  # seconds

log = logger(__name__)


class Observer:
    """Looks, from `start` to `close`. Any thread may read what it has seen."""

    def __init__(self, settings: Settings, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases
        self._figures = Figures(settings, database, leases)
        self._thread = BackgroundThread("observer", self._look_on)
        self._away: dict[str, str | None] = {}  # why a server does not answer; None: it answers
        self._asking: tuple[str, float] | None = None  # a server, and since when it is asked
        self._seen: Sequence[Figure] = ()
        self._said = ""

    def start(self) -> None:
        """Look now, and every few seconds. Call it after all forks."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._thread.close(_CLOSING)

    def figures(self) -> Sequence[Figure]:
        """Return the figures of the pool as they were seen last; none while a server is away."""
        return self._seen

    def servers(self) -> Mapping[str, str | None]:
        """Return the servers that were asked: why one does not answer, or None for one that answers."""
        found = dict(self._away)
        if (asking := self._asking) is not None and (waited := time.monotonic() - asking[1]) > _SILENT:
            found[asking[0]] = f"the {asking[0]} has not answered for {waited:.0f} s"
        return found

    def _look_on(self) -> None:
        while not self._thread.is_stopping:
            began, span = time.monotonic(), EVERY
            try:
                span = self._look()
            except Exception as error:
                self._say(one_line(error))
            self._thread.wait(max(1.0, span - (time.monotonic() - began)))

    def _look(self) -> float:
        """Look once; return after how many seconds to look again."""
        for server, question in (("database", self._ask_database), ("Redis", self._leases.store.probe)):
            try:
                self._waiting_for(server, question)
                self._away[server] = None
            except SensorpoolError as error:
                self._away[server] = str(error)
        if any(self._away.values()):
            self._seen = ()
            return EVERY
        began = time.monotonic()
        self._seen = self._waiting_for("database", self._figures.ask)
        self._said = ""
        return min(max(EVERY * self._figures.workers, _SHARE * (time.monotonic() - began)), _SELDOM)

    def _ask_database(self) -> object:
        return self._database.read(self._database.now)

    def _waiting_for(self, server: str, question: Callable[[], Answer]) -> Answer:
        """Ask a server; `servers` tells meanwhile whether it answers."""
        self._asking = server, time.monotonic()
        try:
            return question()
        finally:
            self._asking = None

    def _say(self, cause: str) -> None:
        """Log why the figures cannot be asked for, once for each cause."""
        self._seen = ()
        if cause != self._said:
            log.warning("the figures of the pool cannot be told", error=cause)
            self._said = cause
