"""The watchdog of a prefork child: it ends the process when one poke stops the whole process or a thread of ours.

A poke that holds the interpreter lock stops every Python thread. `faulthandler` waits on a C thread that needs no
interpreter lock. While pokes go on, a thread of ours puts it off four times a second; if no thread can do even that,
the process is frozen, and `faulthandler` ends it.

A poke may also stop a single thread of ours: it holds an interpreter's lock that the thread needs, or the thread
destroys what the poke left behind. So our threads count their steps. If a thread takes no step, stands at the same
place and does not wait for a server of ours, the watchdog ends the process.

Either way the process prints where its threads stand, exits, and is replaced; its job's note makes its groups suspects.
"""

import _thread
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.poke.pulse import Pulse

_EVERY = 0.25  # seconds
_SHORTEST = 6.0  # seconds without a step that are always allowed: the end of a child may take five
_AT_ONCE = 1.0  # seconds without a step after which the place of the thread is looked at
_EXIT_CODE = 1
_TELLING = 2.0  # seconds for the last words of a process
# packages that wait for our servers, with time limits of their own
_DRIVERS = frozenset(
    {"sqlalchemy", "psycopg", "psycopg_binary", "psycopg_c", "pymysql", "redis", "kombu", "amqp", "vine"}
)
# modules of ours that wait for another thread, with time limits of their own
_BOUNDED_WAITS = frozenset({"sensorpool.publish.send_queue", "sensorpool.instrumentation.background"})
_NO_JOB = "billiard"  # waits for the next job
_LIBRARY = sys.stdlib_module_names - {"logging"}


class Watched:
    """One watched thread of ours, and its steps. A step costs a plain store."""

    __slots__ = ("_place", "_seen", "_since", "standing", "steps", "thread")

    def __init__(self) -> None:
        self.steps = 0
        self.thread: int | None = None  # None: it has nothing to do
        self.standing = 0.0  # seconds for which it has stood at one place, by the looks of the watchdog
        self._seen = -1
        self._since = 0.0  # seconds without a step
        self._place: tuple[int, int] | None = None

    def begin(self) -> None:
        """Watch the calling thread from now on."""
        self.steps += 1
        self.thread = threading.get_ident()

    def step(self) -> None:
        """Take a step."""
        self.steps += 1

    def end(self) -> None:
        """Stop watching the thread."""
        self.thread = None

    def look(self, passed: float) -> None:
        """Find out whether the thread has come further since the last look, ``passed`` seconds ago."""
        thread = self.thread
        if thread is None or self.steps != self._seen:
            self._seen, self._since, self.standing = self.steps, 0.0, 0.0
            return
        self._since += passed
        if self._since < _AT_ONCE:
            return
        place = _place_of(thread)
        if place is None or place != self._place:
            self._place, self.standing = place, 0.0
        else:
            self.standing += passed


@contextmanager
def unwatched() -> Iterator[Watched]:
    """Stand in for `Watchdog.watching` where there is no watchdog."""
    yield Watched()


def _place_of(thread: int) -> tuple[int, int] | None:
    """Return where a thread stands; None while it waits for a server of ours, or for a job."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return None
    place = (id(frame.f_code), frame.f_lasti)
    caller = _past(frame, _LIBRARY)
    name = _module_of(caller)
    if name in _BOUNDED_WAITS or _package(name) == _NO_JOB:
        return None
    if _package(name) not in _DRIVERS:
        return place
    name = _module_of(_past(caller, _LIBRARY | _DRIVERS))
    # a sensor that waits in the same drivers may wait for a server that is not ours
    ours = _package(name) == "sensorpool" and not name.startswith("sensorpool.sensors")
    of_airflow = _package(name) == "airflow" and not name.startswith("airflow.providers")
    return None if ours or of_airflow else place


def _past(frame: FrameType | None, packages: frozenset[str]) -> FrameType | None:
    """Return the first caller outside of these packages."""
    while frame is not None and _package(_module_of(frame)) in packages:
        frame = frame.f_back
    return frame


def _module_of(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def _package(module: str) -> str:
    return module.partition(".")[0]


def _end(seconds: float) -> NoReturn:
    """End this process, and print where its threads stand. Not through the log: its lock may be what they wait for.

    Nor does the end wait for the print: what reads our output may have stopped, and be what they wait for.
    """
    told = _thread.allocate_lock()
    told.acquire()
    try:
        _thread.start_new_thread(_tell, (seconds, told))  # a `Thread` takes locks, which a poke may hold
        told.acquire(timeout=_TELLING)
    finally:
        os._exit(_EXIT_CODE)


def _tell(seconds: float, told: Any) -> None:
    try:
        os.write(2, b"sensorpool: a thread has come no further for %.1f s; its process is ended\n" % seconds)
        if not hasattr(os, "memfd_create"):  # no Linux
            faulthandler.dump_traceback(file=2)
            return
        file = os.memfd_create("stacks")  # faulthandler holds the interpreter lock while it writes; `os.write` does not
        faulthandler.dump_traceback(file=file)
        os.write(2, os.pread(file, os.fstat(file).st_size, 0))
    finally:
        told.release()


class Limits(NamedTuple):
    """How long a process may stand still."""

    frozen: float  # seconds in which no thread runs while pokes go on
    standing: float  # seconds in which a watched thread takes no step


def limits(poke_timeout: float) -> Limits:
    """Return how long a process may stand still, by the time limit of a poke (seconds)."""
    return Limits(poke_timeout + 0.5, max(2 * poke_timeout, _SHORTEST) + 0.5)


class Watchdog:
    """Ends this process when it stands still.

    :param pulse: beats while something is guarded or watched, even if the watchdog is not enabled.
    :param end: ends the process; called with the seconds without a step.
    """

    def __init__(
        self, limits: Limits, *, enabled: bool, pulse: Pulse | None = None, end: Callable[[float], object] = _end
    ) -> None:
        self.job = Watched()  # the thread that runs jobs, of which there is one in a prefork child
        self.pulse = pulse or Pulse(limits.frozen)
        self._limits = limits
        self._enabled = enabled
        self._end = end
        self._guarded = 0  # how many `guard` without their `rest`
        self._watched: tuple[Watched, ...] = ()
        self._lock = threading.Lock()
        self._on_guard = threading.Event()
        self._thread = BackgroundThread("watchdog", self._keep_watch)

    @property
    def is_on_guard(self) -> bool:
        """Whether something is guarded or watched, so that the thread looks."""
        return self._on_guard.is_set()

    def guard(self) -> None:
        """Guard the process: pokes are about to begin."""
        self.pulse.begin()
        if not self._enabled:
            return
        with self._lock:
            self._guarded += 1
            if self._guarded == 1:
                self._arm()  # at once: the first poke may stop our thread before it does
            self._go_on_guard()

    def rest(self) -> None:
        """End the guard that the last `guard` began: its pokes have ended."""
        self.pulse.end()
        if not self._enabled:
            return
        with self._lock:
            self._guarded -= 1
            if not self._guarded:
                faulthandler.cancel_dump_traceback_later()
            self._go_off_guard()

    def close(self) -> None:
        """Stop: the process is about to end. Pokes that go on must not delay that for long."""
        with self._lock:
            if self._guarded:
                self._arm(max(self._limits.frozen, _SHORTEST))
            self._enabled = False
            self._thread.stop()
            self._on_guard.set()
        self._thread.join(2 * _EVERY)
        self.pulse.close()

    def begin_job(self) -> None:
        """Watch the calling thread: it begins a job."""
        if self._enabled:
            self.job.begin()
            self._watch(self.job)

    def end_job(self) -> None:
        """Stop watching the thread of the job: the job is done."""
        if self._enabled:
            self.job.end()
            self._leave(self.job)

    @contextmanager
    def watching(self) -> Iterator[Watched]:
        """Watch the calling thread within this context; it calls `step` of the value."""
        watched = Watched()
        self.pulse.begin()
        if self._enabled:
            watched.begin()
            self._watch(watched)
        try:
            yield watched
        finally:
            self.pulse.end()
            if watched.thread is not None:
                watched.end()
                self._leave(watched)

    def _watch(self, watched: Watched) -> None:
        with self._lock:
            self._watched = (*(each for each in self._watched if each is not watched), watched)
            self._go_on_guard()

    def _leave(self, watched: Watched) -> None:
        with self._lock:
            self._watched = tuple(each for each in self._watched if each is not watched)
            self._go_off_guard()

    def _go_on_guard(self) -> None:
        """Have the thread look from now on. Under the lock."""
        self._on_guard.set()
        self._thread.start()

    def _go_off_guard(self) -> None:
        """Have the thread rest, if there is nothing to guard or watch. Under the lock."""
        if not self._guarded and not self._watched:
            self._on_guard.clear()

    def _keep_watch(self) -> None:
        while self._on_guard.wait() and not self._thread.wait(_EVERY):
            with self._lock:
                if not self._enabled:
                    return
                if self._guarded:
                    self._arm()
                watched = self._watched
            for each in watched:
                each.look(_EVERY)  # counts looks, not clock time: a process that was stopped has not stood still
                if each.standing > self._limits.standing:
                    self._end(each.standing)

    def _arm(self, seconds: float | None = None) -> None:
        # file 2: Celery replaces sys.stderr with an object that has no descriptor
        faulthandler.dump_traceback_later(seconds or self._limits.frozen, exit=True, file=2)
