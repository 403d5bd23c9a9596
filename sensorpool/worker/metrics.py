"""Prometheus metrics that a worker's processes count. The values of labels are bounded.

Prefork children count in the files of Prometheus's client, and its collector adds them up in the worker's main process,
so `prepare` comes before the fork. A file belongs to a child's place in the pool, not to its process: the child that
replaces a dead one counts on in the same files, so there are no more files than children.
"""

import atexit
import os
import shutil
import tempfile
import threading
import time
from bisect import bisect_left
from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.values import JobResult, Report, Settled
from sensorpool.worker.bounded_labels import OTHER, Names

_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_POKE_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BUCKETS = len(_POKE_SECONDS) + 1  # with that of longer pokes
_LAG_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)
_NOT_LISTED = "not listed"  # stands for classes that are not on the allowlist
# bytes of a process's files, which get their blocks before they are mapped: on a full disk a write into memory that is
# mapped to a sparse file ends the process by SIGBUS
_FILES = {"counter": 1 << 19, "histogram": 1 << 16, "gauge_max": 1 << 16}
_WRITE_EVERY = 1.0  # seconds: pokes are added up in memory meanwhile, which costs less than a write for each

log = logger(__name__)

Kinds = Callable[[Iterable[int]], list[tuple[str, str]]]
"""Returns the class and the backend of each of these groups; both are empty of a group that is not known."""


class Metrics:
    """Counts, once `start` was called; before that every method does nothing. Safe to share between threads."""

    def __init__(self) -> None:
        self.is_on = False
        self.registry: Any = None  # Prometheus's, of this process alone
        self._were_not_here: set[str] = set()
        self._kinds: Kinds = lambda group_ids: [("", "") for _ in group_ids]
        self._lock = threading.Lock()
        self._added: defaultdict[tuple[tuple[str, str], Outcome], int] = defaultdict(int)
        self._took: defaultdict[str, float] = defaultdict(float)  # seconds by class
        self._lengths = [0] * _BUCKETS
        self._written_at = 0.0
        self._classes, self._backends = Names(), Names()

    def start(self) -> None:
        """Make the metrics. In a worker, `prepare` was called before."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        if (folder := _folder()) is not None:
            from prometheus_client import values

            # it chooses where to count when it is imported, and Flower's Celery command may have imported it before
            values.ValueClass = values.MultiProcessValue(lambda: _place)  # type: ignore[no-untyped-call]
            self._classes, self._backends = Names(folder / "classes"), Names(folder / "backends")
        registry = self.registry = CollectorRegistry()

        def counter(name: str, said: str, *labels: str) -> Any:
            return Counter(name, said, labels, registry=registry)

        self._pokes = counter("sensorpool_pokes", "Pokes made.")
        self._saved = counter("sensorpool_pokes_saved", "Pokes saved because instances share a group.")
        self._outcomes = counter("sensorpool_outcomes", "Pokes by what they saw.", "op_classpath", "outcome")
        self._of_backends = counter("sensorpool_backend_outcomes", "Pokes by what they saw.", "backend", "outcome")
        self._of_classes = counter("sensorpool_class_seconds", "Seconds that pokes took.", "op_classpath")
        self._seconds = Histogram(
            "sensorpool_poke_seconds", "Seconds a poke took.", buckets=_POKE_SECONDS, registry=registry
        )
        self._lag = Histogram(
            "sensorpool_lag_seconds", "Seconds by which a job was late.", buckets=_LAG_SECONDS, registry=registry
        )
        self._settled = counter("sensorpool_settled", "Instances settled, and why they ended.", "state", "ending")
        self._unsettled = counter(
            "sensorpool_unsettled", "Results of groups that could not be written, for no known reason."
        )
        self._skipped = counter("sensorpool_jobs_skipped", "Jobs that found their range taken.")
        self._left = counter("sensorpool_left", "Due groups that a job had no time for; the next one begins with them.")
        self._busy = counter("sensorpool_busy", "Due groups that missed their turn: their last poke went on still.")
        self._held = counter("sensorpool_held", "Pokes left out because their backend is away.", "backend")
        self._sparse = counter("sensorpool_sparse", "Pokes left out because their condition never landed so early.")
        self._shared = counter("sensorpool_shared_calls", "Calls that asked for many groups.", "op_classpath")
        self._refused = counter("sensorpool_jobs_refused", "Jobs of another pool that came by our broker.")
        self._not_here = Gauge(
            "sensorpool_not_here",
            "Sensor classes that this worker cannot poke; others have to.",
            ["op_classpath"],
            multiprocess_mode="max",
            registry=registry,
        )
        self._not_here.labels(_NOT_LISTED).set(0)
        self.is_on = True

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
                told[self._classes.of(op_classpath)] += op_classpath in listed
            for name, count in told.items():
                self._not_here.labels(name).set(count > 0)
            self._were_not_here |= listed
            self._not_here.labels(_NOT_LISTED).set(others)

    def poked(self, reports: Sequence[Report], many: Sequence[NotLanded] = ()) -> None:
        """Count pokes of which the length is known. They are written within a second, or at the end of the job."""
        if not self.is_on:
            return
        kinds = self._kinds([report.group.id for report in reports])
        kinds_of_many = [Counted(self._kinds(each.ids)) for each in many]
        with self._lock:
            added, took, lengths = self._added, self._took, self._lengths
            for report, kind in zip(reports, kinds, strict=True):
                seconds = report.seconds
                added[kind, report.outcome] += 1
                took[kind[0]] += seconds
                lengths[bisect_left(_POKE_SECONDS, seconds)] += 1
            for each, counted in zip(many, kinds_of_many, strict=True):
                lengths[bisect_left(_POKE_SECONDS, each.seconds)] += len(each.ids)
                for kind, number in counted.items():
                    added[kind, Outcome.NOT_LANDED] += number
                    took[kind[0]] += number * each.seconds
        if time.monotonic() - self._written_at > _WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Write what has been added up since the last time."""
        with self._lock:
            self._written_at = time.monotonic()
            added, took, lengths = self._added, self._took, self._lengths
            self._added, self._took, self._lengths = defaultdict(int), defaultdict(float), [0] * _BUCKETS
        self._pokes.inc(sum(added.values()))
        _observe(self._seconds, lengths, sum(took.values()))
        for ((op_classpath, backend), outcome), number in added.items():
            self._outcomes.labels(self._classes.of(op_classpath or OTHER), outcome.value).inc(number)
            self._of_backends.labels(self._backends.of(backend or OTHER), outcome.value).inc(number)
        for op_classpath, seconds in took.items():
            self._of_classes.labels(self._classes.of(op_classpath or OTHER)).inc(seconds)

    def job(self, result: JobResult) -> None:
        """Count one job."""
        if not self.is_on:
            return
        self.write()
        if result.skipped:
            self._skipped.inc()
            return
        self._saved.inc(result.saved)
        self._left.inc(result.left)
        self._busy.inc(result.extra.get("busy", 0))
        self._lag.observe(result.lag_seconds)

    def held(self, missed: Counted[str]) -> None:
        """Count pokes that were left out, by backend."""
        if self.is_on:
            for backend, number in missed.items():
                self._held.labels(self._backends.of(backend)).inc(number)

    def sparse(self, number: int) -> None:
        """Count pokes that were left out because their condition never landed so early."""
        if self.is_on:
            self._sparse.inc(number)

    def shared(self, calls: Counted[str]) -> None:
        """Count calls that asked for many groups, by class."""
        if self.is_on:
            for op_classpath, number in calls.items():
                self._shared.labels(self._classes.of(op_classpath)).inc(number)

    def unsettled(self, groups: int) -> None:
        """Count groups whose result could not be written."""
        if self.is_on:
            self._unsettled.inc(groups)

    def refused(self) -> None:
        """Count a job of another pool."""
        if self.is_on:
            self._refused.inc()

    def settled(self, settled: list[Settled]) -> None:
        """Count settled instances."""
        if self.is_on:
            for each in settled:
                self._settled.labels(each.state.value, each.ending.value).inc()


def _observe(histogram: Any, lengths: Sequence[int], seconds: float) -> None:
    """Add pokes to a histogram. Prometheus's client adds them one by one only, for 3 µs each.

    :param lengths: how many pokes belong to each bucket.
    :param seconds: their sum.
    """
    for place, number in enumerate(lengths):
        if number:
            histogram._buckets[place].inc(number)
    histogram._sum.inc(seconds)


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
