"""A limit on the memory of processes that poke, and who ran out of it (Linux)."""

import contextlib
import re
import sys
from pathlib import Path

_MB = 2**20


def limit(more: int) -> None:
    """Let this process take so many megabytes more than it has now; beyond it, whoever asks gets a `MemoryError`.

    Private memory that can be written counts, taken up or not, and so do the stacks of threads (8 MB each).
    """
    if sys.platform != "linux":
        return
    import resource

    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        return
    wanted = int(found[1]) * 1024 + more * _MB
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def kills() -> int:
    """Count the processes that the kernel has killed because memory ran out; 0 where it does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1])
    return 0
