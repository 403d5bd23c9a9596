"""A limit on the memory of processes that poke, and the count of kills for lack of memory (Linux)."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_MB = 2**20
_STACK = 8 * _MB
_IMPORT = 1024 * _MB


def limit(more: int, threads: int) -> None:
    """Let this process take so many megabytes more than it has now; an allocation beyond raises `MemoryError`.

    :param more: megabytes.
    :param threads: how many threads may be started: Linux counts whole stacks, so their size is added.
    """
    if (taken := _taken()) is not None:
        _set(taken + more * _MB + threads * _stack())


def allow_threads(number: int) -> None:
    """Allow the stacks of so many more threads than `limit` did."""
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
    """Allow an import up to 1 GB on top of the limit for pokes; bounded, because pokes go on meanwhile."""
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
    """Return how much memory this process has, in bytes; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return None if found is None else int(found[1]) * 1024


def _set(wanted: int) -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def kills() -> int:
    """Return how many processes the kernel has killed because memory ran out; 0 where it does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1])
    return 0
