"""Prometheus metrics of a worker, served on loopback unless a setting says otherwise. The values of labels are bounded.

Prefork children count in files that the worker's main process adds up, so `prepare` comes before the fork.
"""

import atexit
import os
import shutil
import tempfile
from collections import Counter as Counted
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from typing import Any

from sensorpool.model.values import JobResult, Report, Settled

_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_POKE_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Counts, once `start` was called; before that every method does nothing."""

    def __init__(self) -> None:
        self._on = False
        self._were_not_here: set[str] = set()

    def start(self) -> None:
        """Make the metrics. In a worker, `prepare` was called before."""
        from prometheus_client import Counter, Gauge, Histogram

        if _MULTIPROCESS in os.environ:
            from sensorpool.worker import metric_files

            metric_files.use()
        self._pokes = Counter("sensorpool_pokes", "Pokes made.")
        self._saved = Counter("sensorpool_pokes_saved", "Pokes saved because instances share a group.")
        self._outcomes = Counter("sensorpool_outcomes", "Pokes by what they saw.", ["outcome"])
        self._seconds = Histogram("sensorpool_poke_seconds", "Seconds a poke took.", buckets=_POKE_SECONDS)
        self._lag = Histogram("sensorpool_lag_seconds", "Seconds by which a job was late.", buckets=_LAG_SECONDS)
        self._settled = Counter("sensorpool_settled", "Instances settled.", ["state"])
        self._unsettled = Counter(
            "sensorpool_unsettled", "Results of groups that could not be written, for no known reason."
        )
        self._skipped = Counter("sensorpool_jobs_skipped", "Jobs that found their range taken.")
        self._left = Counter("sensorpool_left", "Due groups that a job had no time for; the next one begins with them.")
        self._busy = Counter("sensorpool_busy", "Due groups that missed their turn: their last poke went on still.")
        self._refused = Counter("sensorpool_jobs_refused", "Jobs of another pool that came by our broker.")
        self._not_here = Gauge(
            "sensorpool_not_here",
            "Sensor classes that this worker cannot poke; others have to.",
            ["op_classpath"],
            multiprocess_mode="livemax",
        )
        self._on = True

    def not_here(self, listed: Set[str], others: bool) -> None:
        """Say which classes of the allowlist this process cannot poke now, and whether there are others."""
        if self._on:
            for op_classpath in self._were_not_here | listed:
                self._not_here.labels(op_classpath).set(op_classpath in listed)
            self._were_not_here |= listed
            self._not_here.labels("not listed").set(others)

    def poked(self, reports: Sequence[Report]) -> None:
        """Count pokes of which the length is known."""
        if self._on:
            self._pokes.inc(len(reports))
            for outcome, number in Counted(report.outcome for report in reports).items():
                self._outcomes.labels(outcome.value).inc(number)
            for report in reports:
                self._seconds.observe(report.seconds)

    def job(self, result: JobResult) -> None:
        """Count one job."""
        if not self._on:
            return
        if result.skipped:
            self._skipped.inc()
            return
        self._saved.inc(result.saved)
        self._left.inc(result.left)
        self._busy.inc(result.extra.get("busy", 0))
        self._lag.observe(result.lag_seconds)

    def unsettled(self, groups: int) -> None:
        """Count groups whose result could not be written."""
        if self._on:
            self._unsettled.inc(groups)

    def refused(self) -> None:
        """Count a job of another pool."""
        if self._on:
            self._refused.inc()

    def settled(self, settled: list[Settled]) -> None:
        """Count settled instances."""
        if self._on:
            for each in settled:
                self._settled.labels(each.state.value).inc()


def prepare() -> None:
    """Have children count in files. Call this in the worker's main process before it forks, and before `start`.

    :raises OSError: when there can be no folder for them; the worker can run without counting.
    """
    if _MULTIPROCESS not in os.environ:
        folder = os.environ[_MULTIPROCESS] = tempfile.mkdtemp(prefix="sensorpool-metrics-")
        atexit.register(_remove, folder, os.getpid())
    elif not os.path.isdir(given := os.environ[_MULTIPROCESS]):
        del os.environ[_MULTIPROCESS]  # Prometheus's client would raise an error at each metric
        raise NotADirectoryError(f"{_MULTIPROCESS} is no directory: {given}")


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a child's exit leaves the others their files
        shutil.rmtree(folder, ignore_errors=True)


def serve(host: str, port: int, gauges: Sequence[Callable[[], Sequence[tuple[str, str, float]]]]) -> Any:
    """Serve the metrics.

    :param host: the address to listen on.
    :raises OSError: when that cannot be.
    :param gauges: each returns name, help and value of what is asked at each scrape.
    """
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import REGISTRY

    class Waiting:
        """Gauges that the database and Redis know."""

        def collect(self) -> Iterator[Any]:
            for ask in gauges:
                with suppress(Exception):  # no figure is better than a wrong one
                    for name, said, value in ask():
                        yield GaugeMetricFamily(name, said, value=value)

    if _MULTIPROCESS in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry = REGISTRY
    registry.register(Waiting())
    return start_http_server(port, addr=host, registry=registry)


def child_ended(pid: int) -> None:
    """Forget the gauges of a child that is gone."""
    if _MULTIPROCESS in os.environ:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]
