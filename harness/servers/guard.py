"""The guard: ends a server and removes its folder when the test run ends, in whatever way.

It runs beside the server in a session of its own, and reads lines of process ids from its standard input. When the
input ends, it kills the processes of the last line. The kernel closes that pipe even if the run is killed with -9.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil


def freeze(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Stop processes and all their descendants, parents first, and return them in that order once all have stopped."""
    frozen: list[psutil.Process] = []
    running = list(roots)
    # A process may start another one until it is stopped itself, so look again until there is no new one.
    while running:
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        frozen += running
        running = [process for process in descendants(frozen) if process not in frozen]
    deadline = time.monotonic() + 10
    # a process stops when it is next to run, and not when the signal is sent
    while any(map(_runs, frozen)) and time.monotonic() < deadline:
        time.sleep(0.001)
    return frozen


def _runs(process: psutil.Process) -> bool:
    """Whether a process has neither stopped nor ended."""
    with suppress(psutil.NoSuchProcess):
        return process.status() not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    return False


def thaw(processes: Iterable[psutil.Process]) -> None:
    """Let stopped processes go on."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def kill(roots: Iterable[psutil.Process]) -> None:
    """Kill processes and all their descendants at one instant, as a power cut would, and wait for their end."""
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
    """Whether a process has not ended."""
    try:
        # A zombie has ended; in a container whose first process does not collect zombies, it stays one for ever.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return all descendants of these processes."""
    found: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += process.children(recursive=True)
    return list(dict.fromkeys(found))


def alive(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the processes that exist; psutil keeps their start times, so a reused number does no harm."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def main(folder: str) -> None:
    """Read process ids until the input ends; then kill them and remove the folder."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watched: list[psutil.Process] = []
    for line in sys.stdin:
        watched = alive(int(pid) for pid in line.split())
    kill(watched)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
