"""Prometheus metrics that a worker's processes count. The values of labels are bounded.

Prefork children count in the files of Prometheus's client, and its collector adds them up in the worker's main process,
so `prepare` comes before the fork. A file belongs to a child's place in the pool, not to its process: the child that
replaces a dead one counts on in the same files, so there are no more files than children.
"""

import atexit
import os
import shutil
import tempfile
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.values import JobResult, Report

_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_POKE_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)
OTHER, MOST = "other", 50  # stands for further values of a label; how many a process tells by their names
_NOT_LISTED = "not listed"  # stands for classes that are not on the allowlist
# bytes of a process's files, which get their blocks before they are mapped: on a full disk a write into memory that is
# mapped to a sparse file ends the process by SIGBUS
_FILES = {"counter": 1 << 19, "histogram": 1 << 16, "gauge_max": 1 << 16}

log = logger(__name__)

Kinds = Callable[[Iterable[int]], list[tuple[str, str]]]
"""Returns the class and the backend of each of these groups; both are empty of a group that is not known."""


# each counter, without the prefix and suffix of its name: what it says, and its labels
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "pokes": ("Pokes made.", ()),
    "pokes_saved": ("Pokes saved because instances share a group.", ()),
    "outcomes": ("Pokes by what they saw.", ("op_classpath", "outcome")),
    "backend_outcomes": ("Pokes by what they saw.", ("backend", "outcome")),
    "class_seconds": ("Seconds that pokes took.", ("op_classpath",)),
    "settled": ("Instances settled, and why they ended.", ("state", "ending")),
    "unsettled": ("Results of groups that could not be written, for no known reason.", ()),
    "jobs_skipped": ("Jobs that found their range taken.", ()),
    "left": ("Due groups that a job had no time for; the next one begins with them.", ()),
    "busy": ("Due groups that missed their turn: their last poke went on still.", ()),
    "held": ("Pokes left out because their backend is away.", ("backend",)),
    "sparse": ("Pokes left out because their condition never landed so early.", ()),
    "shared_calls": ("Calls that asked for many groups.", ("op_classpath",)),
    "jobs_refused": ("Jobs of another pool that came by our broker.", ()),
}


class _Names:
    """The values of a label that users choose. One that is given out stays, so no counter ever falls."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def of(self, value: str) -> str:
        """Return a value, or `OTHER` if there are too many others."""
        if value and value != OTHER and len(self._names) < MOST:
            self._names.add(value)  # two threads at once may go beyond the bound by one
        return value if value in self._names else OTHER


class Metrics:
    """Counts, once `start` was called; before that every method does nothing. Safe to share between threads."""

    def __init__(self) -> None:
        self.is_on = False
        self.registry: Any = None  # Prometheus's, of this process alone
        self._were_not_here: set[str] = set()
        self._kinds: Kinds = lambda group_ids: [("", "") for _ in group_ids]
        self._names = {"op_classpath": _Names(), "backend": _Names()}

    def start(self) -> None:
        """Make the metrics. In a worker, `prepare` was called before."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        if _folder() is not None:
            from prometheus_client import values

            # it chooses where to count when it is imported, and Flower's Celery command may have imported it before
            values.ValueClass = values.MultiProcessValue(lambda: _place)  # type: ignore[no-untyped-call]
        registry = self.registry = CollectorRegistry()
        self._counters: dict[str, Any] = {
            name: Counter(f"sensorpool_{name}", said, labels, registry=registry)
            for name, (said, labels) in _COUNTERS.items()
        }
        self._seconds = Histogram(
            "sensorpool_poke_seconds", "Seconds a poke took.", buckets=_POKE_SECONDS, registry=registry
        )
        self._lag = Histogram(
            "sensorpool_lag_seconds", "Seconds by which a job was late.", buckets=_LAG_SECONDS, registry=registry
        )
        said = "Sensor classes that this worker cannot poke; others have to."
        self._not_here = Gauge(
            "sensorpool_not_here", said, ["op_classpath"], multiprocess_mode="max", registry=registry
        )
        self._not_here.labels(_NOT_LISTED).set(0)
        self.is_on = True

    def count(self, name: str, number: float = 1, *labels: str) -> None:
        """Count something of `_COUNTERS`.

        :param labels: the values of its labels.
        """
        if self.is_on and number:
            told = [
                self._names[label].of(value) if label in self._names else value
                for label, value in zip(_COUNTERS[name][1], labels, strict=True)
            ]
            counter = self._counters[name]
            (counter.labels(*told) if told else counter).inc(number)

    def begin_child(self, index: int) -> None:
        """Count in the files of a child. Call it in the child, before it counts; on a full disk it does not count.

        :param index: of its place in the pool.
        """
        global _place
        _place = f"child{index}"
        if self.is_on and (folder := _folder()) is not None:
            try:
                _allocate(folder, _place)
                with (folder / f"gauge_max_{_place}.db").open("r+b") as file:
                    file.write(bytes(8))  # the gauges of the child before it: the head says that nothing is used
            except OSError as error:
                self.is_on = False
                log.warning("metrics are not counted in this process: no room for its files", error=str(error))

    def know(self, kinds: Kinds) -> None:
        """Have pokes counted by class and backend."""
        self._kinds = kinds

    def not_here(self, listed: Set[str], others: bool) -> None:
        """Say which classes of the allowlist this process cannot poke now, and whether there are others."""
        if self.is_on:
            told: Counted[str] = Counted()
            for op_classpath in self._were_not_here | listed:
                told[self._names["op_classpath"].of(op_classpath)] += op_classpath in listed
            for name, count in told.items():
                self._not_here.labels(name).set(count > 0)
            self._were_not_here |= listed
            self._not_here.labels(_NOT_LISTED).set(others)

    def poked(self, reports: Sequence[Report], many: Sequence[NotLanded] = ()) -> None:
        """Count pokes."""
        if not self.is_on:
            return
        kinds = self._kinds([report.group.id for report in reports])
        for report, kind in zip(reports, kinds, strict=True):
            self._poked(kind, report.outcome, report.seconds)
        for each in many:
            for kind, number in Counted(self._kinds(each.ids)).items():
                self._poked(kind, Outcome.NOT_LANDED, each.seconds, number)

    def _poked(self, kind: tuple[str, str], outcome: Outcome, seconds: float, number: int = 1) -> None:
        op_classpath, backend = kind
        self.count("pokes", number)
        self.count("outcomes", number, op_classpath, outcome.value)
        self.count("backend_outcomes", number, backend, outcome.value)
        self.count("class_seconds", number * seconds, op_classpath)
        for _ in range(number):
            self._seconds.observe(seconds)

    def job(self, result: JobResult) -> None:
        """Count one job."""
        if result.skipped:
            self.count("jobs_skipped")
        elif self.is_on:
            self.count("pokes_saved", result.saved)
            self.count("left", result.left)
            self.count("busy", result.extra.get("busy", 0))
            self._lag.observe(result.lag_seconds)


_place = "main"  # of this process in its worker


def prepare() -> None:
    """Have children count in files. Call this in the worker's main process before it forks, and before `start`.

    :raises OSError: when there is no room for the files; the worker can run without counting.
    """
    folder = tempfile.mkdtemp(prefix="sensorpool-metrics-")
    atexit.register(_remove, folder, os.getpid())
    _allocate(Path(folder), _place)
    os.environ[_MULTIPROCESS] = folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a child's exit leaves the others their files
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path | None:
    """Return the folder in which the processes of this worker count; None: they count in no files."""
    return Path(os.environ[_MULTIPROCESS]) if _MULTIPROCESS in os.environ else None


def _allocate(folder: Path, place: str) -> None:
    for kind, size in _FILES.items():
        path = folder / f"{kind}_{place}.db"
        try:
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            path.unlink(missing_ok=True)  # a scrape reads all files, and an empty one has no head
            raise


def collector() -> Any:
    """Return Prometheus's collector of what all processes of this worker have counted; None: they count in no files."""
    if (folder := _folder()) is None:
        return None
    from prometheus_client.multiprocess import MultiProcessCollector

    return MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]
