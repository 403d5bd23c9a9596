"""The processes of bundles that one process of the pool has: bounded in number and age, started when needed."""

import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

from sensorpool.airflow.compat import server_process
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.pool.dag_files.bundle_key import BundleKey
from sensorpool.airflow.pool.dag_files.process import BundleProcess, Gone
from sensorpool.airflow.proof.arguments import dag_file
from sensorpool.config.settings import Settings
from sensorpool.errors import HandBack, NotReady
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.answer import CANNOT

_IDLE = 30.0  # seconds without a poke, after which a process may make room for that of another bundle
_UNUSED = 900.0  # seconds without a poke, after which a process ends
_AGAIN = 5.0  # seconds between two processes of one bundle, of which the first has older code
_NEW = 60.0  # seconds that the files count as new which a process has brought when it began
_DEATHS = 1_000  # pokes that are remembered, and files
_FINE = 3  # reports of a poke, made apart from others that a process died with, until it is as any other
_REFUSED = 60.0  # seconds that a file is not loaded after its load has ended a process; doubles each time
_LONGEST_REFUSED = 3600.0  # seconds


class _Refused(NamedTuple):
    """Why a file is not loaded, and until when, by the monotonic clock."""

    why: str
    until: float
    wait: float


class Processes:
    """The processes of bundles. Safe to share between threads.

    :param most: processes at once.
    """

    def __init__(self, settings: Settings, most: int) -> None:
        self._settings = settings
        self._most = most
        self._lock = threading.Lock()
        self._running: dict[BundleKey, BundleProcess] = {}
        self._ages: dict[BundleKey, float] = {}
        # pokes that a process died with, each with the reports that it takes to be as any other again
        self._deaths: OrderedDict[tuple[BundleKey, tuple[str, str]], int] = OrderedDict()
        self._one_at_a_time = threading.Lock()
        self._refused: OrderedDict[tuple[BundleKey, str], _Refused] = OrderedDict()

    def poke(self, bundle: BundleKey, path: str, poke_context: str) -> Report:
        """Have a bundle's process poke; return its report.

        :raises HandBack: when only a worker can poke it.
        :raises InfraFailure: when the process is not ready yet.
        """
        refused = self._refused.get((bundle, path))
        if refused is not None and time.monotonic() < refused.until:
            raise HandBack(refused.why)
        with self._one_of_those_that_died(bundle, (path, poke_context)):
            return self._poke(bundle, path, poke_context)

    def _poke(self, bundle: BundleKey, path: str, poke_context: str) -> Report:
        for _ in range(3):
            process = self._process_of(bundle)
            try:
                report = process.poke(path, poke_context)
            except Gone:
                continue
            if report.outcome is Outcome.CANNOT_POKE and dag_file.OLD_FILES in str(report.reason):
                if time.monotonic() - process.began < _NEW:
                    raise HandBack(str(report.reason).partition(CANNOT)[2].replace(dag_file.OLD_FILES, "").strip())
                process.retire()
                continue
            if report.outcome is Outcome.CANNOT_POKE and dag_file.STALE in str(report.reason):
                if time.monotonic() - process.began > _AGAIN:
                    process.retire()
                    continue
                break
            return report
        raise NotReady(f"the process of the bundle {bundle.name} is replaced by one with the present code")

    @property
    def running(self) -> list[BundleProcess]:
        """The processes that take pokes."""
        with self._lock:
            return [process for process in self._running.values() if process.takes_pokes]

    def _process_of(self, bundle: BundleKey) -> BundleProcess:
        with self._lock:
            now = time.monotonic()
            for old, process in list(self._running.items()):
                if now - process.began > self._ages[old] or (now - process.used > _UNUSED and process.is_idle):
                    process.retire()
                if not process.takes_pokes:
                    del self._running[old]
            if (found := self._running.get(bundle)) is not None:
                return found
            if len(self._running) >= self._most:
                self._make_room(now)
            # not all at once
            self._ages[bundle] = self._settings.child_max_age * random.uniform(0.75, 1)
            made = self._running[bundle] = BundleProcess(
                self._settings, bundle, partial(self._has_died_with, bundle), partial(self._refuse, bundle)
            )
            return made

    def _make_room(self, now: float) -> None:
        idle = [process for process in self._running.values() if process.is_idle and now - process.used > _IDLE]
        if not idle:
            raise HandBack(f"{self._most} other DAG bundles or versions are poked here (dag_bundle_processes)")
        least = min(idle, key=lambda process: process.used)
        least.retire()
        del self._running[least.bundle]

    @contextmanager
    def _one_of_those_that_died(self, bundle: BundleKey, what: tuple[str, str]) -> Iterator[None]:
        """Make one poke at a time of those that a process died with: the next death names the one that it was."""
        if (bundle, what) not in self._deaths:
            yield
            return
        if not self._one_at_a_time.acquire(timeout=0.3 * self._settings.poke_timeout):
            raise NotReady(f"a process of the bundle {bundle.name} died with its poke; it waits for others of these")
        try:
            yield
        finally:
            self._one_at_a_time.release()
        with self._lock:  # it has reported
            left = self._deaths.get((bundle, what), 1) - 1
            if left:
                self._deaths[bundle, what] = left
            else:
                self._deaths.pop((bundle, what), None)

    def _has_died_with(self, bundle: BundleKey, what: tuple[str, str]) -> bool:
        with self._lock:
            if (bundle, what) in self._deaths:
                return True
            self._deaths[bundle, what] = _FINE
            while len(self._deaths) > _DEATHS:
                self._deaths.popitem(last=False)
            return False

    def _refuse(self, bundle: BundleKey, path: str, why: str) -> None:
        """Load a file no more for a while: each time its load ends the process of all files of its bundle."""
        with self._lock:
            before = self._refused.pop((bundle, path), None)
            wait = _REFUSED if before is None else min(2 * before.wait, _LONGEST_REFUSED)
            self._refused[bundle, path] = _Refused(why, time.monotonic() + wait, wait)
            while len(self._refused) > _DEATHS:
                self._refused.popitem(last=False)


@cache
def processes() -> Processes:
    """Return the processes of this process's bundles, for which it looks up Connections and Variables."""
    server_process.become_server()
    return Processes(Settings.load(), AirflowSettings.load().dag_bundle_processes)


os.register_at_fork(after_in_child=processes.cache_clear)
