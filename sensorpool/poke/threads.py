"""The lane of threads: they pull from one shared queue (a future a poke costs 12 µs, this 0.05 µs).

A poke that overruns its time limit costs its own slot: the slot is given up with its thread, and a new one takes its
place. Nothing waits for the thread; if it ever comes back it finds that its slot is gone, and ends.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeVar

from sensorpool.model import DueGroup
from sensorpool.poke.answer import Report


class Work(Protocol):
    """Something to poke."""

    @property
    def groups(self) -> list[DueGroup]:
        """What it pokes."""

    def poke(self) -> list[Report]:
        """Poke, and say what was seen. Raises nothing."""

    def overran(self, began: float, limit: float) -> list[Report]:
        """Say that the poke overran its limit (seconds)."""


Item = TypeVar("Item")


def drained(queue: deque[Item]) -> list[Item]:
    """Take everything out of a queue that others are filling or emptying."""
    taken: list[Item] = []
    try:
        while True:
            taken.append(queue.popleft())
    except IndexError:
        return taken


class _Slot:
    """A place for one poke at a time."""

    __slots__ = ("began", "given_up", "lock", "work")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work: Work | None = None
        self.began = 0.0
        self.given_up = False


class ThreadLane:
    """Pokes on threads.

    :param concurrency: pokes at once.
    :param poke_timeout: seconds.
    """

    def __init__(self, concurrency: int, poke_timeout: float) -> None:
        self.abandoned = 0  # threads that were given up and have not come back
        self._concurrency = concurrency
        self._poke_timeout = poke_timeout
        self._queue: deque[Work] = deque()
        self._done: deque[list[Report]] = deque()
        self._slots: set[_Slot] = set()
        self._lock = threading.Lock()

    def put(self, works: Iterable[Work]) -> None:
        """Queue work, and make sure that somebody takes it up."""
        self._queue.extend(works)
        self.supervise()

    @property
    def queued(self) -> int:
        """How much work nobody has taken up yet."""
        return len(self._queue)

    def withdraw(self) -> list[Work]:
        """Take back what nobody has taken up yet."""
        return drained(self._queue)

    def supervise(self) -> None:
        """Give up the slots that overran; start threads while there is more to do than hands: one, two, four, …"""
        now = time.monotonic()
        with self._lock:
            slots = list(self._slots)
        for slot in slots:
            if slot.work is not None and now - slot.began > self._poke_timeout:
                self._give_up(slot, now)
        with self._lock:
            busy = len(self._slots)
        for _ in range(min(self._concurrency - busy, len(self._queue), max(1, busy))):
            slot = _Slot()
            with self._lock:
                self._slots.add(slot)
            threading.Thread(target=self._work, args=(slot,), daemon=True, name="poke").start()

    def collect(self) -> list[list[Report]]:
        """Return what has been reported since the last call."""
        return drained(self._done)

    @property
    def idle(self) -> bool:
        """Whether everything was poked or given up."""
        return not self._queue and not self._slots

    def _give_up(self, slot: _Slot, now: float) -> None:
        with slot.lock:
            work = slot.work
            if work is None or now - slot.began <= self._poke_timeout:
                return  # it came back this moment
            slot.given_up = True
        with self._lock:
            self.abandoned += 1
            self._slots.discard(slot)
        self._done.append(work.overran(slot.began, self._poke_timeout))

    def _work(self, slot: _Slot) -> None:
        queue, done, monotonic, lock = self._queue, self._done, time.monotonic, slot.lock
        while True:
            try:
                work = queue.popleft()
            except IndexError:
                break
            slot.began = monotonic()
            slot.work = work
            reports = work.poke()
            with lock:
                if slot.given_up:
                    break
                slot.work = None
            done.append(reports)
        with self._lock:
            if slot.given_up:
                self.abandoned -= 1
            self._slots.discard(slot)
