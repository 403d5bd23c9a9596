"""Whether a process of one service was told to end: what a signal handler says, for the threads that settle."""

import mmap
import queue
import threading
import time

_PATIENCE = 1.0  # seconds for the main thread to come round
_LOOK_EVERY = 0.02  # seconds


class WorkerStopping:
    """A flag in memory that a worker's main process shares with its children: the worker was told to end.

    Where a service manager signals each process of a service, a child may get its signal before the main process does.
    """

    def __init__(self) -> None:
        self._flag = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Say that the worker is to end. Signal handlers may call this."""
        self._flag[0] = 1

    def is_set(self) -> bool:
        """Whether the worker was told to end."""
        return bool(self._flag[0])

    def wait(self, seconds: float) -> bool:
        """Wait for the flag; return whether the worker was told to end."""
        deadline = time.monotonic() + seconds
        while not self.is_set() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        return self.is_set()


class Stopping:
    """A flag that a signal handler sets.

    Python runs signal handlers on the main thread. A signal for a whole group of processes ends the command of a poke
    too, and the poke's thread may run on before the main thread runs its handler. So `is_set` first has the main thread
    come round, which runs the handlers of all signals that have arrived.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._is_waited_for = False  # by a main thread, which comes round for those who ask
        self._asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()  # signal handlers may use it

    def set(self) -> None:
        """Say that the process is to end. Signal handlers and all threads may call this."""
        self._is_set = True
        self._asked.put(None)

    def is_set(self) -> bool:
        """Whether the process was told to end, by a signal that arrived before this call too."""
        if not self._is_set and self._is_waited_for and threading.current_thread() is not threading.main_thread():
            came_round = threading.Event()
            self._asked.put(came_round)
            came_round.wait(_PATIENCE)
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait on the main thread, and come round for those who ask.

        :returns: whether the process was told to end.
        """
        self._is_waited_for = True
        deadline = time.monotonic() + seconds
        while not self._is_set and (remaining := deadline - time.monotonic()) > 0:
            try:
                asked = self._asked.get(timeout=remaining)
            except queue.Empty:
                break
            if asked is not None:
                asked.set()
        return self._is_set
