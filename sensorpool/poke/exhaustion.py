"""What it means when a process runs out of what its pokes share: memory, files, threads.

The poke that meets the shortage need not be its cause. So in a process with many pokes the shortage is no answer, and
the group is poked apart. A child with a single poke shows whether that poke is the cause.
"""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from traceback import walk_tb

_DEEP = 8  # exceptions in a chain that are looked at
_MEMORY = frozenset({errno.ENOMEM})
_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_FORKING = frozenset({"subprocess", "multiprocessing.popen_fork", "pty"})  # where EAGAIN means: no more processes
_NO_THREAD = "can't start new thread"
_LOOK_EVERY = 10.0  # seconds
_NEAR = 0.75  # of the files that a process may have open
_SPARE_THREADS = 512  # threads that a process may have besides ours
_OWN_THREADS = 64  # in a child with one poke, so many threads are that poke's doing


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory has run out."""
    return any(isinstance(each, MemoryError) or _number(each) in _MEMORY for each in _behind(error))


def is_exhaustion(error: BaseException) -> bool:
    """Whether files, threads or processes have run out: by the exception, or because no file can be opened here now."""
    return any(_number(each) in _FILES or _finds_no_thread(each) for each in _behind(error)) or not _has_a_file()


def is_own_doing(error: BaseException) -> bool:
    """Whether the limit that was met is this process's own, not the machine's or the user's."""
    if any(_finds_no_thread(each) for each in _behind(error)):
        return (_threads() or 0) >= _OWN_THREADS
    return all(_number(each) != errno.ENFILE for each in _behind(error))


class Shortage:
    """Whether files or threads run out in this process. It counts them once in `_LOOK_EVERY` seconds.

    :param threads: how many threads of our own there may be.
    """

    def __init__(self, threads: int) -> None:
        self._most_threads = threads + _SPARE_THREADS
        self._looked_at = -_LOOK_EVERY
        self._found: str | None = None

    def look(self) -> str | None:
        """Return what runs out; None if nothing does, or the system does not tell."""
        now = time.monotonic()
        if not _has_a_file():
            self._found = "no file can be opened"
        elif now - self._looked_at >= _LOOK_EVERY:
            self._looked_at, self._found = now, self._look()
        return self._found

    def _look(self) -> str | None:
        if (files := _listed("/proc/self/fd")) is not None and files > _NEAR * _most_files():
            return f"{files:,} files are open"
        if (threads := _threads()) is not None and threads > self._most_threads:
            return f"{threads:,} threads live"
        try:
            threading.Thread(target=int, daemon=True, name="probe").start()
        except (RuntimeError, MemoryError):
            return "no thread can be started"
        return None


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and the exceptions that caused it."""
    link: BaseException | None = error
    for _ in range(_DEEP):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _number(error: BaseException) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _finds_no_thread(error: BaseException) -> bool:
    """Whether no thread or process could be started. EAGAIN has many meanings; it counts where processes are made."""
    if isinstance(error, RuntimeError):
        return bool(error.args) and error.args[0] == _NO_THREAD
    if _number(error) != errno.EAGAIN:
        return False
    return any(frame.f_globals.get("__name__") in _FORKING for frame, _ in walk_tb(error.__traceback__))


def _has_a_file() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _FILES
    return True


def _threads() -> int | None:
    return _listed("/proc/self/task")


def _listed(folder: str) -> int | None:
    with suppress(OSError):
        return len(os.listdir(folder))
    return None


def _most_files() -> float:
    try:
        import resource
    except ImportError:
        return float("inf")
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if most == resource.RLIM_INFINITY else most
