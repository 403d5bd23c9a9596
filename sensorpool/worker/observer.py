"""Looks at the pool and its servers every few seconds, on a thread, so that a scrape or a probe asks no server itself.

Each worker looks whether its servers answer. One worker at a time, the observer, asks for the figures of the pool: a
sum over all workers is right, and a big pool is asked once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.leases.lease import Leases
from sensorpool.leases.observing import Observing
from sensorpool.store.database import Database
from sensorpool.worker.figures import Figure, Figures

Answer = TypeVar("Answer")

EVERY = 5.0  # seconds between two looks
_SHARE = 50  # looking takes at most one part in so many of the time
_SELDOM = 60.0  # seconds between two looks at most
_KEPT = 3  # times the span to the next look, for which the observer keeps its part
_SILENT = 3.0  # seconds after which a server that was asked and has not answered counts as away
_COUNTING = 20.0  # seconds: the same of a database that is asked for figures, which may have to count
_CLOSING = 1.0  # seconds

log = logger(__name__)


class _Seen(NamedTuple):
    at: float  # by the monotonic clock
    figures: Sequence[Figure]


class Observer:
    """Looks, from `start` to `close`. Any thread may read what it has seen.

    :param name: of the worker, with its process and a random part.
    """

    def __init__(self, settings: Settings, database: Database, leases: Leases, name: str) -> None:
        self._database = database
        self._leases = leases
        self._figures = Figures(settings, database, leases)
        self._observing = Observing(leases, name)
        self._thread = BackgroundThread("observer", self._look_on)
        self._away: dict[str, str | None] = {}  # why a server does not answer; None: it answers
        self._asking: tuple[str, float, float] | None = None  # a server, since when it is asked, how long it may take
        self._seen: _Seen | None = None
        self._said = ""

    def start(self) -> None:
        """Look now, and every few seconds. Call it after all forks."""
        self._thread.start()

    def close(self) -> None:
        """Stop; another worker is the observer soon."""
        if self._thread.close(_CLOSING):
            self._observing.leave()

    @property
    def is_observer(self) -> bool:
        """Whether this worker tells the figures of the pool."""
        return self._observing.is_observer

    def figures(self) -> list[Figure]:
        """Return the figures of the pool as they were seen last, ages as of now; none if another one tells them."""
        seen = self._seen
        if seen is None or not self._observing.is_observer:
            return []
        more = time.monotonic() - seen.at
        return [each._replace(value=each.value + more) if each.is_age else each for each in seen.figures]

    def servers(self) -> Mapping[str, str | None]:
        """Return the servers that were asked: why one does not answer, or None for one that answers."""
        asking, found = self._asking, dict(self._away)
        if asking is not None:
            server, since, patience = asking
            if (waited := time.monotonic() - since) > patience:
                found[server] = found.get(server) or f"the {server} has not answered for {waited:.0f} s"
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
        self._ask("database", lambda: self._database.read(self._database.now))
        self._ask("Redis", self._leases.store.probe)
        if any(self._away.values()) or not self._observing.take_part(_KEPT * EVERY):
            self._seen = None
            return EVERY
        began = time.monotonic()
        figures = self._waiting_for("database", _COUNTING, self._figures.ask)
        span = min(max(EVERY, _SHARE * (time.monotonic() - began)), _SELDOM)
        if not self._observing.take_part(_KEPT * span):
            self._seen = None
            return EVERY
        self._seen, self._said = _Seen(began, figures), ""
        return span

    def _ask(self, server: str, question: Callable[[], object]) -> None:
        try:
            self._waiting_for(server, _SILENT, question)
            self._away[server] = None
        except SensorpoolError as error:
            self._away[server] = str(error)

    def _waiting_for(self, server: str, patience: float, question: Callable[[], Answer]) -> Answer:
        """Ask a server; `servers` tells meanwhile whether it answers in time (seconds)."""
        self._asking = server, time.monotonic(), patience
        try:
            return question()
        finally:
            self._asking = None

    def _say(self, cause: str) -> None:
        """Log why the figures cannot be asked for, once for each cause."""
        self._seen = None
        if cause != self._said:
            log.warning("the figures of the pool cannot be told", error=cause)
            self._said = cause
