"""Bounds on what pokes take from their process: its memory (Linux), and room in the worker's log."""

import contextlib
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

MOST = 64 * 1024  # characters
SPAN = 10.0  # seconds in which at most MOST characters are printed
_MB = 2**20
_STACK = 8 * _MB


def limit_memory(more: int, threads: int) -> None:
    """Let this process take so many megabytes more than it has now; an allocation beyond raises `MemoryError`.

    :param more: megabytes.
    :param threads: how many more threads may be started: Linux counts whole stacks, so their size is added.
    """
    if sys.platform != "linux":
        return
    import resource

    taken = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if taken is None:
        return
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stacks = threads * (_STACK if stack == resource.RLIM_INFINITY else stack)
    wanted = int(taken[1]) * 1024 + more * _MB + stacks
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def lift_memory() -> None:
    """Let this process take as much memory as it can get, until the next `limit_memory`."""
    if sys.platform == "linux":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def kills() -> int:
    """Return how many processes the kernel has killed because memory ran out; 0 where it does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1])
    return 0


class BoundedOutput:
    """Stands in for a stream of text, and drops what is over the bound: a poke that prints must not fill the disk.

    Every other attribute is the stream's own.

    :param most: characters that are printed in a span.
    :param span: seconds.
    """

    def __init__(self, stream: Any, most: int = MOST, span: float = SPAN) -> None:
        self._stream = stream
        self._most = most
        self._span = span
        self._lock = threading.Lock()
        self._ends = 0.0
        self._left = 0

    def write(self, text: str) -> int:
        """Print the text as far as the bound allows; return its whole length."""
        length = len(text)  # outside of the lock: the text is a poke's object, whose `len` may hang
        with self._lock:
            now = time.monotonic()
            if now >= self._ends:
                self._ends, self._left = now + self._span, self._most
            had = self._left
            self._left = max(0, had - length)
        if had:
            self._stream.write(
                text if length <= had else f"{text[:had]} … (too much is printed; the rest is dropped)\n"
            )
        return length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
