"""A limit on the memory of processes that poke, and who ran out of it (Linux)."""

import contextlib
import re
import sys
from pathlib import Path

_MB = 2**20
_STACK = 8 * _MB


def limit(more: int, threads: int) -> None:
    """Let this process take so many megabytes more than it has now; beyond it, whoever asks gets a `MemoryError`.

    :param threads: how many may be started; Linux counts their stacks, taken up or not, so these come on top.
    """
    if sys.platform != "linux":
        return
    import resource

    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        return
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stack = _STACK if stack == resource.RLIM_INFINITY else stack
    wanted = int(found[1]) * 1024 + more * _MB + threads * stack
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def lift() -> None:
    """Take the limit away."""
    if sys.platform == "linux":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def kills() -> int:
    """Count the processes that the kernel has killed because memory ran out; 0 where it does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1])
    return 0
