"""A send queue: one thread sends the queued items in order, so that no job waits for a broker.

The queue is bounded in items and bytes. A message that it does not take stays in the database, and is sent from there.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger

ITEMS = 1_000
BYTES = 16 * 2**20
IDLE = 10.0  # seconds without an item after which the thread ends, so a pool that is dropped unclosed leaves no thread
PAUSE = 2.0  # seconds for which the queue takes nothing after the broker did not answer

log = logger(__name__)


class _Item(NamedTuple):
    act: Callable[[], object]
    weight: int
    is_over: threading.Event  # the item was tried, or never will be


class SendQueue:
    """Sends queued items. Safe to share between threads; its thread lives while there are items.

    :param items: the most items that wait.
    :param limit: the most bytes that wait.
    :param idle: seconds without an item after which the thread ends.
    """

    def __init__(self, name: str, *, items: int = ITEMS, limit: int = BYTES, idle: float = IDLE) -> None:
        self._name = name
        self._items, self._limit, self._idle = items, limit, idle
        self._waiting: deque[_Item] = deque()
        self._in_hand: _Item | None = None
        self._weight = 0
        self._closed_until: float | None = None  # the end of `stop`'s patience, by the monotonic clock
        self._away_until = 0.0
        self._thread = BackgroundThread(f"sensorpool-{name}", self._go)
        self._news = threading.Condition()

    def put(self, act: Callable[[], object], weight: int = 0) -> threading.Event | None:
        """Queue a function for the thread; None if the queue is full or closed, or its broker was away just now.

        :returns: what is set when the function was called, or never will be.
        """
        item = _Item(act, weight, threading.Event())
        with self._news:
            full = len(self._waiting) >= self._items or self._weight + weight > self._limit
            if full or self._closed_until is not None or time.monotonic() < self._away_until:
                return None
            self._waiting.append(item)
            self._weight += weight
            self._thread.start()
            self._news.notify_all()
        return item.is_over

    @property
    def is_clear(self) -> bool:
        """Whether no item waits or is being sent: a new item is sent at once."""
        with self._news:
            return not self._waiting and self._in_hand is None

    def stop(self, patience: float) -> None:
        """Take no more items; end once the waiting ones are sent, or after ``patience`` seconds."""
        with self._news:
            self._closed_until = time.monotonic() + patience
            self._thread.stop()
            self._news.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; return whether it has."""
        return self._thread.join(seconds)

    def _go(self) -> None:
        while (item := self._next()) is not None:
            try:
                item.act()
            except Unreachable as error:
                log.warning("a message is sent later", queue=self._name, error=str(error))
                self._leave(PAUSE)
            except Refused as error:
                log.warning("a message is sent later", queue=self._name, error=str(error))
            except Exception:
                log.exception("a message is sent later", queue=self._name)
            finally:
                with self._news:
                    self._in_hand = None
                    self._weight -= item.weight
                item.is_over.set()

    def _next(self) -> _Item | None:
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
        """Leave the waiting items to the database: each of them would only wait for its time limit."""
        with self._news:
            left = list(self._waiting)
            self._waiting.clear()
            self._weight -= sum(item.weight for item in left)
            self._away_until = time.monotonic() + pause
        for item in left:
            item.is_over.set()
