"""The files in which Prometheus's client counts: one kind of metric of one process each, mapped into its memory.

Prometheus's own files are sparse: on a full disk they can be opened and made longer, and the first write into the
mapped memory ends the process by SIGBUS. These have their blocks before they are mapped. A process that gets no blocks
does its work and does not count.

What a child has counted is added to the files of all dead children when it ends. So a worker has as many files as
living children, however often they are replaced, and a scrape reads no more.
"""

import mmap
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from sensorpool.instrumentation.logs import logger
from sensorpool.worker.bounded_labels import BoundedLabels

_BLOCK = 4_096  # bytes by which a file grows: each child has its own, and they stay while the worker runs
_HEAD = 64  # bytes, at least those of an entry without its key

_FOLDED = ("counter", "histogram")  # kinds of metrics whose values of dead processes count on
_DEAD = "dead"  # stands in a file's name for the processes that are dead

Value = tuple[float, float]
"""A value and its time."""

log = logger(__name__)

_folding = threading.Lock()  # a scrape meanwhile would find values twice, or not at all


def use() -> None:
    """Have Prometheus's client count in these files. Call it before the first metric is made."""
    # it chooses where to count when it is imported, and Flower's Celery command may have imported it before
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]


class Collector:
    """Prometheus's collector of a worker's processes.

    :param folder: where they count.
    """

    def __init__(self, folder: str) -> None:
        self._processes = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._labels = BoundedLabels()

    def collect(self) -> Iterable[Any]:
        """Return the metrics of all processes, added up."""
        with _folding:
            return list(self._labels.bound(self._processes.collect()))  # type: ignore[no-untyped-call]


def fold(folder: str, pid: int) -> None:
    """Add what a dead process has counted to the file of all dead ones, and remove its files.

    Where the disk has no room for that, its files stay.
    """
    with _folding, suppress(OSError):
        mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
        for kind in _FOLDED:
            own = Path(folder, f"{kind}_{pid}.db")
            if own.exists():
                all_dead = AllocatedDict(str(Path(folder, f"{kind}_{_DEAD}.db")))
                if all_dead.add(own):
                    own.unlink()
                all_dead.close()  # type: ignore[no-untyped-call]


class AllocatedDict(MmapedDict):
    """A file of values by key. A key for which the disk has no room is not kept; the log says so once.

    :param filename: the file; it is made if it is not there.
    """

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self._name = filename
        self._is_full = False
        try:
            _make(filename)
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except OSError as error:
            self._f = None  # type: ignore[assignment]
            self._give_up(error)

    def read_value(self, key: str) -> Value:
        """Return the value of a key; 0 for one that is not kept."""
        if not self._has(key):
            return 0.0, 0.0
        value: Value = super().read_value(key)  # type: ignore[no-untyped-call]
        return value

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Write the value of a key, if it is kept."""
        if self._has(key):
            super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]

    def add(self, file: Path) -> bool:
        """Add the values of another file; return whether there was room for all of them: otherwise none is added."""
        found = list(self.read_all_values_from_file(str(file)))  # type: ignore[no-untyped-call]
        if not all(self._has(key) and self.read_value(key) for key, *_ in found):
            return False
        for key, value, at, _ in found:
            self.write_value(key, self.read_value(key)[0] + value, at)
        return True

    def _has(self, key: str) -> bool:
        """Whether there is a place for a key, which is made for a new one if the disk has room."""
        if self._f is None:
            return False
        if key in self._positions:
            return True
        if self._is_full:
            return False
        needed = self._used + len(key.encode()) + _HEAD
        if needed > self._capacity:
            capacity = -(-needed // _BLOCK) * _BLOCK
            try:
                os.posix_fallocate(self._f.fileno(), 0, capacity)
                self._m = mmap.mmap(self._f.fileno(), capacity)
            except OSError as error:
                self._give_up(error)
                return False
            self._capacity = capacity
        return True

    def _give_up(self, error: OSError) -> None:
        self._is_full = True
        log.warning("metrics are not counted in this process: no room for a file", file=self._name, error=str(error))


def _make(filename: str) -> None:
    """Make a file with its blocks: under another name first, because a scrape reads all files.

    :raises OSError: when the disk has no room for it, or its folder is gone.
    """
    part = f"{filename}.part"
    try:
        with open(filename if os.path.exists(filename) else part, "ab") as file:
            os.posix_fallocate(file.fileno(), 0, max(_BLOCK, os.fstat(file.fileno()).st_size))
        if os.path.exists(part):
            os.replace(part, filename)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise
