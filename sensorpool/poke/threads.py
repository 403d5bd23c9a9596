"""The lane of threads: they pull what waits from one shared place (a future a poke costs 12 µs).

A poke that overruns its time limit costs its own slot: the slot is given up with its thread, and a new one takes its
place. Nothing waits for the thread; if it ever comes back it finds that its slot is gone, and leaves it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from sensorpool.model import DueGroup, Report
from sensorpool.poke.slots import Slots, Waiting

_IDLE = 30.0  # seconds that a thread waits for more to do
_QUICK = 50e-6  # seconds: more threads do not make pokes faster that take no longer, for they wait for nothing
_SLOW = 0.01  # seconds: nobody waits longer behind a poke, where there are other threads


class Work(Protocol):
    """Something to poke: one thing, or several one after the other."""

    op_classpath: str
    began: float  # when the poke that goes on began, by the monotonic clock

    @property
    def groups(self) -> list[DueGroup]:
        """What has not been poked."""

    def poke(self) -> list[Report]:
        """Poke, and say what was seen. Raises nothing."""

    def overran(self, limit: float) -> list[Report]:
        """Say what was seen so far, and that the poke that goes on overran its limit (seconds)."""

    def rest(self) -> "Iterable[Work]":
        """Take back what nobody has begun to poke."""


Item = TypeVar("Item")


def drained(queue: deque[Item]) -> list[Item]:
    """Take everything out of a queue that others are filling or emptying."""
    taken: list[Item] = []
    try:
        while True:
            taken.append(queue.popleft())
    except IndexError:
        return taken


class Hands:
    """Threads that outlive what they do, for a start costs ten times a wake-up. Safe to share between threads."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Callable[[], None]]] = deque()

    def do(self, task: Callable[[], None]) -> None:
        """Run a task, which raises nothing, on a thread."""
        try:
            self._idle.pop().put(task)
        except IndexError:
            threading.Thread(target=self._live, args=(task,), daemon=True, name="poke").start()

    def _live(self, task: Callable[[], None]) -> None:
        inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        while True:
            task()
            self._idle.append(inbox)
            try:
                task = inbox.get(timeout=_IDLE)
            except Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    task = inbox.get()  # somebody has just taken us
                else:
                    return


class _Slot:
    """A place for one poke at a time."""

    __slots__ = ("given_up", "lock", "work")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work: Work | None = None
        self.given_up = False


class ThreadLane:
    """Pokes on threads.

    :param slots: how many pokes at once; lanes may share them.
    :param poke_timeout: seconds.
    """

    def __init__(self, slots: Slots, poke_timeout: float, hands: Hands | None = None) -> None:
        self.abandoned = 0  # threads that were given up and have not come back
        self._places = slots
        self._poke_timeout = poke_timeout
        self._hands = hands or Hands()
        self._waiting: Waiting[Work] = Waiting(slots)
        self._done: deque[list[Report]] = deque()
        self._slots: set[_Slot] = set()
        self._lock = threading.Lock()
        self._looked_at, self._queued_then = time.monotonic(), 0

    def put(self, works: Iterable[Work], *, slow: bool = False) -> None:
        """Queue work, and make sure that somebody takes it up.

        :param slow: that it waits for answers is known, so that as many as may poke at once begin.
        """
        self._waiting.put(works)
        self._queued_then = len(self._waiting)
        self.supervise()
        if slow:
            self._add(self._waiting.takeable)

    @property
    def queued(self) -> int:
        """How much work nobody has taken up yet."""
        return len(self._waiting)

    @property
    def takeable(self) -> int:
        """How much of it could be taken up now."""
        return self._waiting.takeable

    def queued_of(self, op_classpath: str) -> int:
        """How much work of a class nobody has taken up yet."""
        return self._waiting.of_class(op_classpath)

    def withdraw(self) -> list[Work]:
        """Take back what nobody has taken up yet."""
        return self._waiting.drain()

    def supervise(self) -> None:
        """Give up the slots that overran; add threads while they are waiting for answers: one, two, four, …"""
        now = time.monotonic()
        with self._lock:
            slots = list(self._slots)
        for slot in slots:
            work = slot.work
            if work is not None and now - work.began > _SLOW:
                self._waiting.put(work.rest())
                if now - work.began > self._poke_timeout:
                    self._give_up(slot, now)
        with self._lock:
            busy = len(self._slots)
        queued, since = len(self._waiting), now - self._looked_at
        taken, self._looked_at, self._queued_then = self._queued_then - queued, now, queued
        if not queued or (busy and taken * _QUICK > since * busy):
            return
        self._add(min(self._waiting.takeable, max(1, busy)))

    def collect(self) -> list[list[Report]]:
        """Return what has been reported since the last call."""
        return drained(self._done)

    def slow(self, seconds: float) -> bool:
        """Whether all pokes that go on have been going on for so long."""
        now = time.monotonic()
        with self._lock:
            works = [slot.work for slot in self._slots]
        return all(work is not None and now - work.began > seconds for work in works)

    @property
    def idle(self) -> bool:
        """Whether everything was poked or given up."""
        return not self._slots and not self._waiting

    def _add(self, number: int) -> None:
        for _ in range(number):
            slot = _Slot()
            with self._lock:
                self._slots.add(slot)
            try:
                self._hands.do(partial(self._work, slot))
            except (RuntimeError, MemoryError):  # no more threads can be started: those that are there will do
                with self._lock:
                    self._slots.discard(slot)
                return

    def _give_up(self, slot: _Slot, now: float) -> None:
        with slot.lock:
            work = slot.work
            if work is None or now - work.began <= self._poke_timeout:
                return  # it came back this moment
            slot.given_up = True
        with self._lock:
            self.abandoned += 1
            self._slots.discard(slot)
        self._places.release(work.op_classpath)
        self._done.append(work.overran(self._poke_timeout))

    def _work(self, slot: _Slot) -> None:
        take, done, monotonic, lock = self._waiting.take, self._done, time.monotonic, slot.lock
        while (work := take()) is not None:
            work.began = monotonic()
            slot.work = work
            reports = work.poke()
            with lock:
                if slot.given_up:
                    break
                slot.work = None
            done.append(reports)
            self._places.release(work.op_classpath)
        with self._lock:
            if slot.given_up:
                self.abandoned -= 1
            self._slots.discard(slot)
