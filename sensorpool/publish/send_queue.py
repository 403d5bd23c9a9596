"""A send queue: one thread sends, in order, what is put into it, so that no job waits for a broker.

It takes so many items and bytes, and no more: what it does not take stays in the database, and is sent from there.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger

ITEMS = 1_000
BYTES = 16 * 2**20
IDLE = 10.0  # seconds without an item after which the thread ends: a pool that is dropped unclosed leaves none
PAUSE = 2.0  # seconds for which nothing is taken after the broker did not answer

log = logger(__name__)


class Ticket:
    """What is known of an item that a queue took."""

    __slots__ = ("_over", "act", "weight")

    def __init__(self, act: Callable[[], object], weight: int) -> None:
        self.act = act
        self.weight = weight
        self._over = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait until it was tried; return whether it was."""
        return self._over.wait(seconds)

    def end(self) -> None:
        """Say that it was tried, or never will be."""
        self._over.set()


class SendQueue:
    """Sends what is put into it. Safe to share between threads; its thread lives while there is something to send."""

    def __init__(self, name: str, *, items: int = ITEMS, limit: int = BYTES, idle: float = IDLE) -> None:
        self._name = name
        self._items, self._limit, self._idle = items, limit, idle
        self._waiting: deque[Ticket] = deque()
        self._in_hand: Ticket | None = None
        self._weight = 0
        self._closed_until: float | None = None  # by the monotonic clock; then what waits is left
        self._away_until = 0.0
        self._thread = BackgroundThread(f"sensorpool-{name}", self._go)
        self._news = threading.Condition()

    def put(self, act: Callable[[], object], weight: int = 0) -> Ticket | None:
        """Have something done on the thread; None, if the queue is full, closed, or its broker was away just now."""
        ticket = Ticket(act, weight)
        with self._news:
            full = len(self._waiting) >= self._items or self._weight + weight > self._limit
            if full or self._closed_until is not None or time.monotonic() < self._away_until:
                return None
            self._waiting.append(ticket)
            self._weight += weight
            self._thread.start()
            self._news.notify_all()
        return ticket

    @property
    def is_clear(self) -> bool:
        """Whether nothing waits, nor is being sent: what is put now is done at once."""
        with self._news:
            return not self._waiting and self._in_hand is None

    def stop(self, patience: float) -> None:
        """Take no more, and end once what waits has gone, or after ``patience`` seconds."""
        with self._news:
            self._closed_until = time.monotonic() + patience
            self._thread.stop()
            self._news.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; return whether it has."""
        return self._thread.join(seconds)

    def _go(self) -> None:
        while (ticket := self._next()) is not None:
            try:
                ticket.act()
            except Unreachable as error:
                log.warning("it is sent later", queue=self._name, error=str(error))
                self._leave(PAUSE)
            except Refused as error:
                log.warning("it is sent later", queue=self._name, error=str(error))
            except Exception:
                log.exception("it is sent later", queue=self._name)
            finally:
                with self._news:
                    self._in_hand = None
                    self._weight -= ticket.weight
                ticket.end()

    def _next(self) -> Ticket | None:
        with self._news:
            while not self._waiting:
                if self._closed_until is not None:
                    return None
                if not self._news.wait(self._idle) and not self._waiting:
                    self._thread.retire()
                    return None
            over = self._closed_until is not None and time.monotonic() >= self._closed_until
            if not over:
                self._in_hand = self._waiting.popleft()
                return self._in_hand
        self._leave(0)
        return None

    def _leave(self, pause: float) -> None:
        """Leave what waits to the database: one time limit after the other would be waited for in vain."""
        with self._news:
            left = list(self._waiting)
            self._waiting.clear()
            self._weight -= sum(ticket.weight for ticket in left)
            self._away_until = time.monotonic() + pause
        for ticket in left:
            ticket.end()
