"""Threads that pokes run on, kept from poke to poke."""

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from sensorpool.poke.queues import drained

_IDLE = 30.0  # seconds that a thread waits for more to do
_Task = Callable[[], None]


class ReusableThreads:
    """Threads that outlive what they do, for a start costs ten times a wake-up. Safe to share between threads.

    They run the code of users, which nothing can stop: those that are busy when this is closed end after it.
    """

    def __init__(self) -> None:
        self._is_closed = False
        self._idle: deque[SimpleQueue[_Task | None]] = deque()

    def do(self, task: _Task) -> None:
        """Run a task, which raises nothing, on a thread."""
        try:
            self._idle.pop().put(task)
        except IndexError:
            threading.Thread(target=self._live, args=(task,), daemon=True, name="poke").start()

    def close(self) -> None:
        """End the idle threads, and each busy one once its task returns. A task that still comes has its own thread."""
        self._is_closed = True
        for inbox in drained(self._idle):
            inbox.put(None)

    def _live(self, first: _Task) -> None:
        task: _Task | None = first
        inbox: SimpleQueue[_Task | None] = SimpleQueue()
        while task is not None:
            task()
            self._idle.append(inbox)
            try:
                task = inbox.get(timeout=0 if self._is_closed else _IDLE)
            except Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    task = inbox.get()  # another thread has just taken it
                else:
                    return
