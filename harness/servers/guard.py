"""The guard: ends a server and removes its folder once the test run is over, however it ended.

It runs beside the server in a session of its own, reads lines of process ids from its standard input and acts on the
last one when the input ends: the kernel closes that pipe even for a run that was killed with -9.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil


def freeze(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Stop processes and all that descend from them, parents first, and return them in that order."""
    frozen: list[psutil.Process] = []
    found = list(roots)
    # A process may start another until it is stopped itself, so look again until nothing new is found.
    while found:
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        frozen += found
        found = [process for process in descendants(frozen) if process not in frozen]
    return frozen


def thaw(processes: Iterable[psutil.Process]) -> None:
    """Let stopped processes go on."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def kill(roots: Iterable[psutil.Process]) -> None:
    """Kill processes and all that descend from them at one instant, as a power cut would, and see them gone."""
    processes = freeze(roots)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait(processes, seconds=10)


def wait(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Wait until processes have ended, or the time is up."""
    deadline = time.monotonic() + seconds
    for process in processes:
        while lives(process) and time.monotonic() < deadline:
            time.sleep(0.01)


def lives(process: psutil.Process) -> bool:
    """Say whether a process has not ended."""
    try:
        # A zombie has ended; in a container whose first process collects none, it stays one for ever.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that descend from others."""
    found: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += process.children(recursive=True)
    return list(dict.fromkeys(found))


def alive(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the processes that exist; psutil keeps their start times, so a number used again kills nobody."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def main(folder: str) -> None:
    """Watch until the input ends."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watched: list[psutil.Process] = []
    for line in sys.stdin:
        watched = alive(int(pid) for pid in line.split())
    kill(watched)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
