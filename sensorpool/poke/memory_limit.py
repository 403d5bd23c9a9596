"""A limit on the memory of processes that poke, and who ran out of it (Linux)."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_MB = 2**20
_STACK = 8 * _MB
_IMPORT = 1024 * _MB


def limit(more: int, threads: int) -> None:
    """Let this process take so many megabytes more than it has now; beyond it, whoever asks gets a `MemoryError`.

    :param threads: how many may be started; Linux counts their stacks, taken up or not, so these come on top.
    """
    if (taken := _taken()) is not None:
        _set(taken + more * _MB + threads * _stack())


def allow_threads(number: int) -> None:
    """Let so many more threads be started than `limit` allows for: once they are needed, or a leak had their room."""
    if _taken() is None:
        return
    import resource

    limited, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limited != resource.RLIM_INFINITY:
        _set(limited + number * _stack())


def _stack() -> int:
    """Return how much memory Linux counts for a thread, in bytes."""
    import resource

    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _STACK if stack == resource.RLIM_INFINITY else stack


@contextlib.contextmanager
def for_an_import() -> Iterator[None]:
    """Let an import take memory on top of what pokes may take: so much, for others poke meanwhile."""
    before = _taken()
    if before is None:
        yield
        return
    import resource

    limited, _ = resource.getrlimit(resource.RLIMIT_DATA)
    _set(limited + _IMPORT)
    try:
        yield
    finally:
        _set(limited + min(max(0, (_taken() or 0) - before), _IMPORT))


def _taken() -> int | None:
    """Return how much memory this process has, in bytes; None where that is not known."""
    if sys.platform != "linux":
        return None
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return None if found is None else int(found[1]) * 1024


def _set(wanted: int) -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def kills() -> int:
    """Count the processes that the kernel has killed because memory ran out; 0 where it does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1])
    return 0
