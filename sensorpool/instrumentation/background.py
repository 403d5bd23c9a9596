"""Threads of this process's own, each with an owner that starts it when there is work and stops it when it closes.

The threads that poke are different: they run the code of users, so nothing can stop them, and nothing waits for them.
"""

import threading
from collections.abc import Callable


class BackgroundThread:
    """One thread that runs one function. It starts when its owner needs it, and again in a child after a fork.

    The function returns soon after `wait` returns true. It may return earlier, when it finds no work: it calls `retire`
    before that, and the next `start` makes another thread. Owners whose threads share one call `start` and `retire`
    under their own lock, so that no work arrives between the two.

    :param name: of the thread, as a stack dump shows it.
    :param work: runs on the thread.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self._work = work
        self._thread: threading.Thread | None = None
        self._is_retired = False
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start, unless the thread runs or was stopped.

        :raises RuntimeError: when the process can start no more threads.
        """
        if self.is_alive or self._stopping.is_set():
            return
        self._is_retired = False
        thread = self._thread = threading.Thread(target=self._work, daemon=True, name=self.name)
        thread.start()

    def retire(self) -> None:
        """Note that the function returns now. The thread itself calls this."""
        self._is_retired = True

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs, and takes up work. A fork has none of its parent's threads."""
        return not self._is_retired and self._thread is not None and self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Whether the owner has stopped the thread."""
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds, or until the owner stops the thread; return whether it has."""
        return self._stopping.wait(seconds)

    def stop(self) -> None:
        """Have the function return. The thread never starts again."""
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait so many seconds for the thread to end; return whether none runs. The thread itself waits for nothing."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        if thread.ident is not None:
            thread.join(max(0.0, seconds))
        return not thread.is_alive()

    def close(self, seconds: float) -> bool:
        """Stop the thread, and wait so many seconds for its end; return whether it has ended."""
        self.stop()
        return self.join(seconds)
