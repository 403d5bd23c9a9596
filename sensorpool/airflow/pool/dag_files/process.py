"""One process of a bundle, as its parent sees it: pokes are given to it from any thread, and one thread hears it."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from sensorpool.airflow.compat import dag_bundles
from sensorpool.airflow.pool.dag_files import lookups
from sensorpool.airflow.pool.dag_files.bundle_key import BundleKey
from sensorpool.config.settings import Settings
from sensorpool.errors import HandBack, NotReady
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.exit_status import ending
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.child import Child, Suspect

TOGETHER = 32  # pokes at once
MODULE = "sensorpool.airflow.pool.dag_files.child_main"
_HUNG = 8  # pokes that did not return, after which the process gets no more of them
_GRACE = 3.0  # seconds beyond a poke's limit until its report counts as lost
_START = 10.0  # seconds that the process may take to be there, not to be ready

log = logger(__name__)


class Poked:
    """A poke that was given to the process."""

    def __init__(self, number: int, what: tuple[str, str]) -> None:
        self.number = number
        self.what = what
        self.done = threading.Event()
        self.report: Report | None = None
        self.error: Exception | None = None

    def end(self, report: Report | None = None, error: Exception | None = None) -> None:
        """Note how it has ended."""
        self.report, self.error = report, error
        self.done.set()


class Gone(Exception):
    """The process takes no more pokes: another one has to take it."""


class BundleProcess:
    """The process of a bundle. Safe to share between threads.

    :param has_died_with: is called with one of several pokes that the process died with; returns whether it was so
        before. A load has an empty poke_context.
    :param refuse: is called with a file whose load has ended the process, and how.
    """

    def __init__(
        self,
        settings: Settings,
        bundle: BundleKey,
        has_died_with: Callable[[tuple[str, str]], bool],
        refuse: Callable[[str, str], None],
    ) -> None:
        self.bundle = bundle
        self.used = self.began = time.monotonic()
        self._settings = settings
        self._has_died_with = has_died_with
        self._refuse = refuse
        self._room = threading.BoundedSemaphore(TOGETHER)
        self._lock = threading.Lock()
        self._free = list(range(2 * TOGETHER, 0, -1))  # numbers for pokes
        self._given: dict[int, Poked] = {}
        self._child: Child | None = None
        self._there = threading.Event()
        self._failure: Exception | None = None
        self._is_retired = False
        # the kernel ends the process with the thread that has started it
        threading.Thread(target=self._live, daemon=True, name=f"dag-files-{bundle.name}").start()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing in hand."""
        return not self._given

    @property
    def takes_pokes(self) -> bool:
        """Whether it takes more pokes."""
        return not self._is_retired

    @property
    def pid(self) -> int | None:
        """The number of the process; None if there is none."""
        return None if self._child is None else self._child.pid

    def retire(self) -> None:
        """Take no more pokes; the process ends with those that it has."""
        self._is_retired = True

    def poke(self, path: str, poke_context: str) -> Report:
        """Give the process a poke, and wait for its report.

        :raises Gone: when it takes no more.
        :raises HandBack: when only a worker can poke it.
        :raises InfraFailure: when the process is not ready yet, or was ended from outside.
        """
        limit = self._settings.poke_timeout
        patience = time.monotonic() + 0.7 * limit  # the poke's own time begins with it, and the caller's has begun
        if not self._room.acquire(timeout=0.7 * limit):
            raise NotReady(f"the process of the bundle {self.bundle.name} has too many pokes in hand")
        try:
            poked = self._give(path, poke_context, patience)
            while not poked.done.wait(min(0.2, max(0.0, patience - time.monotonic()))):
                began = self._began(poked)
                if began is not None:
                    poked.done.wait(max(0.0, began + limit + _GRACE - time.monotonic()))
                    break
                if time.monotonic() >= patience:
                    break
        finally:
            self._room.release()
        if poked.error is not None:
            raise poked.error
        if poked.report is not None:
            return poked.report
        if self._began(poked) is None:
            raise NotReady(f"the process of the bundle {self.bundle.name} is still loading {path}")
        return Report(_group(poked.number), 0.0, Outcome.POKE_TIMEOUT, f"no answer within {limit:g} s", None, limit)

    def _began(self, poked: Poked) -> float | None:
        child = self._child
        return None if child is None else child.began.get(poked.number)

    def _give(self, path: str, poke_context: str, patience: float) -> Poked:
        self._there.wait(max(0.0, min(_START, patience - time.monotonic())))
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._is_retired or not self._free:
                self._is_retired = True
                raise Gone
            if self._child is None:
                raise NotReady(f"the process of the bundle {self.bundle.name} is being started")
            poked = Poked(self._free.pop(), (path, poke_context))
            self._given[poked.number] = poked
            self._child.give(Suspect(_group(poked.number), path, poke_context, alone=False))
            self.used = time.monotonic()
        return poked

    def _live(self) -> None:
        child = None
        try:
            child = Child(
                self._settings,
                TOGETHER,
                module=MODULE,
                environment=dag_bundles.environment_for_dags(os.environ),
                more={"bundle": self.bundle.name, "version": self.bundle.version, "team": self.bundle.team},
                on_question=self._answer,
            )
            self._child = child
            self._there.set()
            while not child.is_over and not (self._is_retired and self.is_idle):
                for suspect, report in child.hear():
                    self._take(suspect.group.id, report)
                if child.ran_out or child.hung >= _HUNG:
                    self.retire()
        except Exception as error:
            self._failure = HandBack(f"the process of its DAG bundle cannot be started: {one_line(error)}")
            log.exception("the process of a DAG bundle failed", bundle=self.bundle.name)
        finally:
            self.retire()
            self._there.set()
            if child is not None:
                child.end()
                self._end_all(child)

    def _answer(self, question: dict[str, Any]) -> None:
        child = self._child
        if child is not None:
            lookups.answer(question, child.say)

    def _take(self, number: int, report: Report) -> None:
        with self._lock:
            poked = self._given.pop(number, None)
            if report.outcome is not Outcome.POKE_TIMEOUT:
                self._free.append(number)  # a poke that hangs may yet say something under its number
        if poked is not None:
            poked.end(report)

    def _end_all(self, child: Child) -> None:
        """Say what the end of the process means for the pokes that it had in hand."""
        with self._lock:
            left, self._given = list(self._given.values()), {}
        begun = [poked for poked in left if poked.number in child.began]
        how = "froze" if child.froze else f"ended ({ending(child.returncode)})"
        path, why = child.importing, None
        if path is not None and (not child.was_killed or self._has_died_with((path, ""))):
            why = f"loading its DAG file in the pool, the process {how}"
            self._refuse(path, why)
        if left:
            log.warning("the process of a DAG bundle has ended", bundle=self.bundle.name, how=how, pokes=len(left))
        for poked in left:
            if why is not None and poked.what[0] == path:
                poked.end(error=HandBack(why))
            else:
                poked.end(error=self._meaning(child, poked, begun, how))

    def _meaning(self, child: Child, poked: Poked, begun: list[Poked], how: str) -> Exception:
        if child.was_killed:
            return NotReady("the process of its DAG bundle was killed from outside")
        if child.importing is not None:  # no poke goes on while a file is loaded
            return NotReady(f"the process of its DAG bundle {how} as it loaded {child.importing}")
        if not child.ready:
            return HandBack(f"the process of its DAG bundle {how} as it started")
        if poked in begun and (len(begun) == 1 or self._has_died_with(poked.what)):
            return HandBack(f"its poke had the process of its DAG bundle in hand when that {how}")
        return NotReady(f"the process of its DAG bundle {how}; it is poked again")


def _group(number: int) -> DueGroup:
    return DueGroup(number, 0, 0, 0, 0, 0, 0, 0, None)
