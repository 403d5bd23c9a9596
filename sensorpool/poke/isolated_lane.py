"""The isolated lane: suspects are poked in child processes, so that a hang or a crash costs only a child.

Each thread of the lane has one child at a time. A child pokes some groups together, or one group alone. If a child dies
or freezes, each group whose poke had begun is reported with a strike (`Outcome.CRASHED`); the receiver decides what
follows. Only what happens to a group that was alone says something about that group: a child that died by itself is the
group's own doing, and a child that froze or was killed counts as a poke that overran.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import Report
from sensorpool.poke.child import START_LIMIT, Child, Suspect
from sensorpool.poke.slots import FairQueue, Slots

TOGETHER = 16  # pokes at once in a lane that is not wide
STINT = 30.0  # seconds after which a child takes no more groups
_IN_A_CHILD = 64  # pokes at once in one child of a wide lane
_ALONE = 4  # children at once that poke one group each
_HUNG = 4  # a child may have so many times its slots in hung pokes, which keep their memory
_CLOSING = 2.0  # seconds that threads have to end once their children are killed

log = logger(__name__)


class _Driver(threading.Thread):
    """A thread of the lane, and its child.

    :param suspect: the group that is poked alone in the child; None: the child pokes groups together.
    """

    def __init__(self, work: "Callable[[_Driver], None]", suspect: Suspect | None) -> None:
        super().__init__(target=work, args=(self,), daemon=True, name="poke-isolated")
        self.suspect = suspect
        self.is_alone = suspect is not None
        self.has_room = suspect is None  # whether it will take what waits
        self.child: Child | None = None


class IsolatedLane:
    """Pokes suspects on threads of its own, so that no job waits for them. Safe to share between threads.

    :param report: is called with the reports, on one of these threads.
    :param width: pokes at once.
    """

    def __init__(
        self,
        settings: Settings,
        report: Callable[[Sequence[Report]], None],
        width: int = TOGETHER,
    ) -> None:
        self._settings = settings
        self._report = report
        self._slots = Slots(width)
        self._in_a_child = min(width, _IN_A_CHILD)
        # one more child in a wide lane, because a child at the end of its stint waits for its last pokes
        self._most_children = 1 if width <= TOGETHER else -(-width // self._in_a_child) + 1
        self._together: FairQueue[Suspect] = FairQueue(self._slots)
        self._alone: deque[Suspect] = deque()
        self._ids: set[int] = set()  # of the groups that wait or are in hand
        self._drivers: set[_Driver] = set()
        self._lock = threading.Lock()
        self._is_closed = self._is_retired = False

    def offer(self, suspects: Iterable[Suspect]) -> None:
        """Take the suspects that are not in the lane already.

        :raises RuntimeError: when no thread can be started.
        """
        with self._lock:
            if self._is_closed or self._is_retired:
                return
            new = [suspect for suspect in suspects if suspect.group.id not in self._ids]
            self._ids.update(suspect.group.id for suspect in new)
            self._alone.extend(suspect for suspect in new if suspect.alone)
            self._together.put(suspect for suspect in new if not suspect.alone)
        self._start_threads()

    def has(self, group_id: int) -> bool:
        """Whether a group waits or is poked here."""
        with self._lock:
            return group_id in self._ids

    def retire(self) -> list[int]:
        """Take no more groups; return the ids of the waiting ones, which are not reported. Begun pokes go on."""
        with self._lock:
            self._is_retired = True
            return self._drain()

    def close(self) -> list[int]:
        """Kill the children and end the threads; return the ids of all groups of the lane, which are not reported."""
        with self._lock:
            self._is_closed = True
            self._drain()
            left, self._ids = list(self._ids), set()
            drivers = list(self._drivers)
            for driver in drivers:
                if driver.child is not None:
                    driver.child.kill()
        until = time.monotonic() + _CLOSING
        for driver in drivers:
            if driver is not threading.current_thread() and driver.ident is not None:
                driver.join(max(0.0, until - time.monotonic()))
        return left

    def _drain(self) -> list[int]:
        """Remove the waiting groups, and return their ids. Under the lock."""
        waiting = [suspect.group.id for suspect in [*self._together.drain(), *self._alone]]
        self._alone.clear()
        self._ids.difference_update(waiting)
        return waiting

    def _start_threads(self) -> None:
        """Start threads for waiting groups that no thread has room for.

        :raises RuntimeError: when no thread can be started.
        """
        while (driver := self._next_driver()) is not None:
            try:
                driver.start()
            except BaseException:
                self._leave(driver)
                raise

    def _next_driver(self) -> _Driver | None:
        with self._lock:
            sharing = [driver for driver in self._drivers if not driver.is_alone]
            driver = None
            if self._alone and len(self._drivers) - len(sharing) < _ALONE:
                driver = _Driver(self._work, self._alone.popleft())
            elif self._together.takeable and len(sharing) < self._most_children:
                driver = None if any(each.has_room for each in sharing) else _Driver(self._work, None)
            if driver is not None:
                self._drivers.add(driver)
            return driver

    def _leave(self, driver: _Driver) -> None:
        with self._lock:
            self._drivers.discard(driver)
            if driver.suspect is not None:  # it was not poked
                self._ids.discard(driver.suspect.group.id)

    def _work(self, driver: _Driver) -> None:
        try:
            self._poke(driver)
        except Exception:
            log.exception("the isolated lane failed; its groups are due again")
            with self._lock:
                self._drain()
        finally:
            self._leave(driver)
            with suppress(RuntimeError):  # the next offer tries again
                self._start_threads()

    def _poke(self, driver: _Driver) -> None:
        """Poke one group alone in a child, or the waiting groups together until the child's stint is over."""
        child = Child(self._settings, 1 if driver.is_alone else self._in_a_child)
        with self._lock:
            driver.child = child
            if self._is_closed:
                child.kill()
        try:
            if driver.suspect is not None:
                child.give(driver.suspect)
                driver.suspect = None
            self._drive(driver, child)
        except BaseException:
            self._forget(child.in_hand)
            raise
        finally:
            child.end()
            with self._lock:
                driver.child, driver.has_room = None, False
            for suspect in () if driver.is_alone else child.in_hand.values():
                self._slots.release(suspect.op_classpath)
        self._conclude(child, alone=driver.is_alone)

    def _drive(self, driver: _Driver, child: Child) -> None:
        """Feed a child and hand its reports in, until it has nothing in hand or is over."""
        ends = time.monotonic() + STINT
        # a poke that has not begun by then never will: the child cannot start a thread, or is stopped
        gives_up = ends + self._settings.poke_timeout + START_LIMIT
        while not child.is_over:
            if not driver.is_alone:
                self._fill(driver, child, ends)
            if not child.in_hand or time.monotonic() > gives_up:
                break
            heard = child.hear()
            for suspect, _ in () if driver.is_alone else heard:
                self._slots.release(suspect.op_classpath)
            self._hand_in([report for _, report in heard])

    def _fill(self, driver: _Driver, child: Child, ends: float) -> None:
        """Give a child the groups that it has room for, and have another thread take the rest."""
        while has_room := (
            len(child.in_hand) < self._in_a_child
            and not child.ran_out
            and child.hung < _HUNG * self._in_a_child
            and time.monotonic() < ends
        ):
            if (suspect := self._together.take()) is None:
                break
            child.give(suspect)
        with self._lock:
            driver.has_room = has_room
        with suppress(RuntimeError):  # the groups wait for this thread
            self._start_threads()

    def _hand_in(self, reports: Sequence[Report]) -> None:
        if reports and not self._is_closed:
            self._report(reports)
            self._forget(report.group.id for report in reports)

    def _conclude(self, child: Child, *, alone: bool) -> None:
        """Report the groups that a child had in hand at its end. Those whose poke had not begun wait again."""
        left = list(child.in_hand.values())
        if not left or self._is_closed:
            return
        if not child.ready:
            log.error("no child of the isolated lane starts; its groups are due again", returncode=child.returncode)
            with self._lock:
                self._drain()
        reports = [report for suspect in left if (report := child.blame(suspect, alone=alone)) is not None]
        struck = {report.group.id for report in reports}
        rest = [suspect for suspect in left if suspect.group.id not in struck]
        with self._lock:
            goes_on = bool(struck) and not self._is_retired  # else nothing says that the next child does better
            if goes_on and not self._is_closed:
                self._together.put(rest)
        if not goes_on:
            self._forget(suspect.group.id for suspect in rest)
        self._hand_in(reports)

    def _forget(self, group_ids: Iterable[int]) -> None:
        with self._lock:
            self._ids.difference_update(group_ids)
