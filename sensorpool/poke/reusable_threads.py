"""Threads for pokes, kept from poke to poke."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from queue import Empty, SimpleQueue

_IDLE = 30.0  # seconds that an idle thread waits for another task
_Task = Callable[[], None]


class ReusableThreads:
    """Threads that outlive their tasks, because a start costs ten times a wake-up. Safe to share between threads.

    They run the code of users, which nothing can stop: threads that are busy at `close` end after their task. Each task
    has a `contextvars.Context` of its own: what one sets (a decimal precision, a `ContextVar`) no other sees.
    """

    def __init__(self) -> None:
        self._is_closed = False
        self._idle: deque[SimpleQueue[_Task | None]] = deque()

    @property
    def idle(self) -> int:
        """How many threads wait for a task."""
        return len(self._idle)

    def do(self, task: _Task) -> None:
        """Run a task on a thread. The task must not raise.

        :raises RuntimeError: when no thread can be started.
        :raises MemoryError: likewise.
        """
        try:
            self._idle.pop().put(task)
        except IndexError:
            threading.Thread(target=self._live, args=(task,), daemon=True, name="poke").start()

    def close(self) -> None:
        """End the idle threads, and each busy one after its task. A later task gets a thread of its own."""
        self._is_closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().put(None)

    def _live(self, first: _Task) -> None:
        task: _Task | None = first
        inbox: SimpleQueue[_Task | None] = SimpleQueue()
        while task is not None:
            Context().run(task)
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
