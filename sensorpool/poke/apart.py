"""The lane apart: suspects are poked in a child process, so that one that hangs or crashes costs its own group.

Suspects are groups whose poke overran, and those that a dead process had in its hands. They are poked together first,
their classes in turn. If the child dies with several in its hands, the last to begin comes again by himself, and the
others go on: only a crash that we, the living parent, saw with one group in the child's hands counts against that
group; a kill from outside never does. A child that dies of importing a class, with nothing else in its hands, counts
against all groups of that class.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from sensorpool.logs import logger
from sensorpool.model import Report
from sensorpool.poke.child import Child, Suspect
from sensorpool.poke.slots import Slots, Waiting
from sensorpool.settings import Settings
from sensorpool.states import Outcome

TOGETHER = 16  # pokes at once in a child
STINT = 30.0  # seconds: then those have their turn that are poked by themselves, and those that are not
_MOST_HUNG = 4 * TOGETHER  # in one child: what hangs holds its memory
_HAND_IN_EVERY = 0.2  # seconds
_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}

log = logger(__name__)


class LaneApart:
    """Pokes suspects on a thread of its own, one child at a time, so that nobody waits for them.

    :param report: is called with the reports, on that thread.
    :param keep: is called with the ids of the groups in hand every few seconds, on that thread.
    """

    def __init__(
        self,
        settings: Settings,
        report: Callable[[Sequence[Report]], None],
        keep: Callable[[Sequence[int]], None],
    ) -> None:
        self._settings = settings
        self._report = report
        self._keep_in_hand = keep
        self._kept = 0.0
        self._slots = Slots(TOGETHER)
        self._waiting: Waiting[Suspect] = Waiting(self._slots)
        self._alone: deque[Suspect] = deque()
        self._inside: set[int] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def offer(self, suspects: Iterable[Suspect]) -> int:
        """Take these on, save those that are here already; return how many were taken."""
        with self._lock:
            taken = [suspect for suspect in suspects if suspect.group.id not in self._inside]
            self._inside.update(suspect.group.id for suspect in taken)
            self._waiting.put(suspect for suspect in taken if not suspect.alone)
            self._alone.extend(suspect for suspect in taken if suspect.alone)
            is_idle = self._thread is None or not self._thread.is_alive()
            if is_idle and (self._waiting or self._alone):
                self._thread = threading.Thread(target=self._work, daemon=True, name="poke-apart")
                self._thread.start()
        return len(taken)

    def has(self, group_id: int) -> bool:
        """Whether a group is here."""
        with self._lock:
            return group_id in self._inside

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting and not self._alone:
                    self._thread = None  # under the lock: whoever offers next starts another
                    return
            try:
                if self._waiting:
                    self._poke_together(self._waiting)
                ends = time.monotonic() + STINT
                while self._alone and time.monotonic() < ends:
                    self._poke_alone(self._alone.popleft())
            except Exception:
                log.exception("the lane apart failed; its groups are due again")
                self._drop_all()

    def _keep(self) -> None:
        if (now := time.monotonic()) - self._kept >= self._settings.heartbeat:
            self._kept = now
            with self._lock:
                in_hand = list(self._inside)
            self._keep_in_hand(in_hand)

    def _hand_in(self, reports: Sequence[Report]) -> None:
        if reports:
            try:
                self._report(reports)
            finally:
                with self._lock:
                    self._inside.difference_update(report.group.id for report in reports)

    def _drop_all(self) -> None:
        with self._lock:
            self._waiting.drain()
            self._alone.clear()
            self._inside.clear()

    def _poke_together(self, waiting: Waiting[Suspect]) -> None:
        """Poke those that wait in one child: until none does, or it ends, or it has had its time, or its fill."""
        child, ends = Child(self._settings, TOGETHER), time.monotonic() + STINT
        seen: list[Report] = []
        heard, handed_in = False, time.monotonic()
        try:
            while not child.is_over:
                while child.hung < _MOST_HUNG and time.monotonic() < ends and (suspect := waiting.take()):
                    child.give(suspect)
                if not child.in_hand:
                    break
                self._keep()
                for suspect, report in child.hear():
                    heard = True
                    self._slots.release(suspect.op_classpath)
                    if report.outcome is Outcome.CRASHED:  # there was no memory left; another may have taken it
                        self._alone.append(suspect)
                    else:
                        seen.append(report)
                if time.monotonic() - handed_in > _HAND_IN_EVERY:
                    self._hand_in(seen)
                    seen, handed_in = [], time.monotonic()
        finally:
            child.end()
            for suspect in child.in_hand.values():
                self._slots.release(suspect.op_classpath)
        self._hand_in(seen)
        if child.in_hand:
            self._look_into(child, waiting, heard)

    def _look_into(self, child: Child, waiting: Waiting[Suspect], heard: bool) -> None:
        """Find out whom a child that ended with some in its hands died of."""
        begun = [child.in_hand.pop(group_id) for group_id in child.began]
        waiting.put(child.in_hand.values())
        if child.importing is not None:
            waiting.put(begun)
            everybody = waiting.drain()
            own = [suspect for suspect in everybody if suspect.op_classpath == child.importing]
            waiting.put(suspect for suspect in everybody if suspect.op_classpath != child.importing)
            if begun or child.hung:  # it may have died of one of these instead
                by_itself: Waiting[Suspect] = Waiting(self._slots)
                by_itself.put(own)
                self._poke_together(by_itself)
                with self._lock:  # unless everybody was dropped
                    waiting.put(suspect for suspect in by_itself.drain() if suspect.group.id in self._inside)
            else:
                self._hand_in([self._blame(suspect, child) for suspect in own])
        elif len(begun) == 1 and not child.hung:  # those that hang are there still, and may end it
            self._hand_in([self._blame(begun[0], child)])
        elif begun:
            # most likely it was the last to begin: so the others go on together, and he by himself
            waiting.put(begun[:-1])
            self._alone.append(begun[-1])
        elif not heard:  # Python could not even start there, or somebody kills our children: no group's fault
            log.error("no child of the lane apart gets to work; its groups are due again", returncode=child.returncode)
            self._drop_all()

    def _poke_alone(self, suspect: Suspect) -> None:
        """Poke one in a child of its own: whatever happens there is its doing."""
        child = Child(self._settings, 1)
        reports: list[Report] = []
        try:
            child.give(suspect)
            while child.in_hand and not child.is_over:
                self._keep()
                reports += [report for _, report in child.hear()]
        finally:
            child.end()
        if not child.ready and child.returncode == 1:
            log.error("no child of the lane apart can be started; its groups are due again")
            self._drop_all()
        else:
            self._hand_in(reports or [self._blame(suspect, child)])

    def _blame(self, suspect: Suspect, child: Child) -> Report:
        """Say what the end of a child means for whom it had in hand."""
        began, doing = time.monotonic(), "the poke" if child.importing is None else "importing its class"
        if child.froze:
            said = f"{doing} froze its process for {child.frozen_for:g} s"
            return Report(suspect.group, began, Outcome.POKE_TIMEOUT, said)
        if child.starved and child.returncode == -signal.SIGKILL:
            return Report(suspect.group, began, Outcome.CRASHED, f"{doing} took all the memory there was")
        if child.returncode in _OUTSIDE:
            return Report(suspect.group, began, Outcome.POKE_TIMEOUT, "its process was killed from outside")
        ending = _ending(child.returncode)
        return Report(suspect.group, began, Outcome.CRASHED, f"{doing} took its process down ({ending})")


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
