"""The lane of threads: they pull work from one shared queue (a future for each poke would cost 12 µs).

A poke that overruns its time limit costs its own thread: the lane gives the thread up, frees its slot, and starts
another. Nothing waits for the thread; if the poke ever returns, the thread sees that it was given up, and takes no more
work.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextvars import Context
from functools import partial

from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import Seen, not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.fork_guard import FORKED, end_copy
from sensorpool.poke.lane import Lane, Undecided, Work, drained
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.slots import Slots
from sensorpool.poke.tools import overran
from sensorpool.poke.unit import PokeUnit

BATCH = 64  # pokes of a quick class that a thread takes up at once
_INSTANT = 1e-3  # seconds: a poke that found nothing and took no longer needs no report of its own
_NOT_LANDED = Outcome.NOT_LANDED
_HOLDS_UP = 0.01  # seconds after which the units behind a slow poke go to other threads

log = logger(__name__)


class QuickBatch(Work):
    """Groups of a quick class, poked one after the other by one thread: a hand-over costs more than a quick poke.

    This is the path of most pokes, so every line counts. The lane's supervisor may take back the units that wait behind
    a slow one.
    """

    __slots__ = ("_poking", "_reports", "_waiting")

    is_quick = True

    def __init__(self, units: Iterable[PokeUnit]) -> None:
        self.began = 0.0
        self._waiting = deque(units)
        self.op_classpath = self._waiting[0].op_classpath
        self._poking: PokeUnit | None = None
        self._reports: list[Report] = []

    @property
    def groups(self) -> list[DueGroup]:
        """The groups whose poke has not begun."""
        return [unit.group for unit in self._waiting]

    def poke(self) -> list[Seen]:
        """Poke the units one after the other; return what they saw."""
        take, keep = self._waiting.popleft, self._reports.append
        while self._waiting:
            try:
                self._poking = unit = take()
            except IndexError:
                break  # the supervisor has taken the rest back
            [report] = Context().run(unit.poke)  # what a poke sets there, no other poke sees
            if FORKED:
                end_copy()
            self.began = report.began + report.seconds
            keep(report)
        return _in_few(self._reports)

    def overran(self, limit: float) -> list[Seen]:
        """Report what was seen, and that the unit that is being poked overran its limit (seconds)."""
        reports, poking = self._reports.copy(), self._poking
        if poking is None or (reports and reports[-1].group is poking.begun):
            return _in_few(reports)  # the poke has just returned
        return [*_in_few(reports), overran(poking.begun, self.began, limit)]

    def rest(self) -> list[PokeUnit]:
        """Take back the units whose poke has not begun."""
        return drained(self._waiting)


def _in_few(reports: Sequence[Report]) -> list[Seen]:
    """Return reports in as few values as may be."""
    nothing = [report for report in reports if report.outcome is _NOT_LANDED and report.seconds < _INSTANT]
    if not nothing:
        return [*reports]
    seconds = sum([report.seconds for report in nothing]) / len(nothing)
    found = not_landed([report.group for report in nothing], [report.began for report in nothing], seconds)
    if len(nothing) == len(reports):
        return [found]
    return [found, *(each for each in reports if each.outcome is not _NOT_LANDED or each.seconds >= _INSTANT)]


class _Runner:
    """The work of one thread at the moment, and whether the lane has given the thread up."""

    __slots__ = ("given_up", "lock", "work")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work: Work | None = None
        self.given_up = False


class ThreadLane(Lane[Work]):
    """Pokes on threads."""

    def __init__(self, slots: Slots, poke_timeout: float, reusable: ReusableThreads | None = None) -> None:
        super().__init__(slots, poke_timeout, reusable)
        self._runners: set[_Runner] = set()
        self._lock = threading.Lock()
        self._looked_at = 0.0  # when `supervise` last looked at the pokes that go on

    def put(self, works: Iterable[Work]) -> None:
        """Queue work, and make sure that a thread takes it up."""
        self._waiting.put(works)
        self.supervise()

    def supervise(self) -> None:
        """Take back the units behind slow pokes, give up the threads whose poke overran, and add one if work waits.

        None is added while quick pokes are made: it would not make them faster.
        """
        self._slots.look()
        now = time.monotonic()
        if now - self._looked_at < _HOLDS_UP and self._runners:
            return
        self._looked_at = now
        with self._lock:
            runners = list(self._runners)
        are_quick = False
        for runner in runners:
            work = runner.work
            if work is None:
                continue
            if now - work.began <= _HOLDS_UP:
                are_quick = are_quick or work.is_quick
                continue
            if rest := list(work.rest()):
                self._waiting.put(rest)
            if now - work.began > self._poke_timeout:
                self._give_up(runner, now)
        if not are_quick and self._waiting.takeable:
            self._wake()

    @property
    def idle(self) -> bool:
        """Whether no work waits or goes on."""
        return not self._runners and not self._waiting

    def _wake(self) -> None:
        """Tell one more thread to take work. It tells the next one as its first poke begins, unless that is quick.

        A hundred that are told at once wait for the interpreter, and for one another: 1 % of a core at 700 pokes a
        second.
        """
        runner = _Runner()
        with self._lock:
            self._runners.add(runner)
        try:
            self._reusable.do(partial(self._work, runner))
        except BaseException as error:
            with self._lock:
                self._runners.discard(runner)
            if not isinstance(error, RuntimeError | MemoryError):
                raise  # a signal
            # no thread can be started: the running threads do the work

    def _give_up(self, runner: _Runner, now: float) -> None:
        with runner.lock:
            work = runner.work
            if work is None or now - work.began <= self._poke_timeout:
                return  # the poke has just returned
            runner.given_up = True
        with self._lock:
            self.abandoned += 1
            self._runners.discard(runner)
        self._slots.release(work.op_classpath)
        self._done.append(work.overran(self._poke_timeout))

    def _work(self, runner: _Runner) -> None:
        done, monotonic, lock = self._done, time.monotonic, runner.lock
        reports: Sequence[Seen | Undecided] | None
        try:
            work = self._waiting.take()
            if work is not None and not work.is_quick and self._waiting.takeable:
                self._wake()
            used = time.thread_time()  # what that took is not the poke's
            while work is not None:
                work.began = monotonic()
                runner.work = work
                try:
                    reports = Context().run(work.poke)
                except BaseException:  # the last resort: neither the thread nor its slot is lost
                    end_copy()
                    log.exception("the result of a poke cannot be read; the poke counts as one that overran")
                    reports = None
                if FORKED:
                    end_copy()
                with lock:
                    if runner.given_up:
                        break
                    runner.work = None
                if reports is None:
                    self._waiting.put(work.rest())
                    reports = work.overran(self._poke_timeout)
                done.append(reports)
                used, before = time.thread_time(), used
                work = self._waiting.take_after(work.op_classpath, used - before)
        finally:
            with self._lock:
                if runner.given_up:
                    self.abandoned -= 1
                self._runners.discard(runner)
