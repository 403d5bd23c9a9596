"""How suspects are poked in child processes: together, by themselves, or watched; and what the end of a child means.

If a child dies with several groups in its hands, the last to begin comes again by itself, and the others go on: only a
crash that the living parent saw, in a child that never poked another group, counts against its group. For what a poke
leaves behind may end the child later; a kill from outside never counts. A child that dies of importing a class, and has
poked nothing yet, counts against all groups of that class.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.child import START_LIMIT, Child, Suspect
from sensorpool.poke.isolated_groups import IsolatedGroups
from sensorpool.poke.slots import FairQueue
from sensorpool.poke.watchdog import Watched

STINT = 30.0  # seconds after which the groups that wait in the other line have their turn
LINGER = 5.0  # seconds for which a child lives on, in case what a poke left behind ends it
LINGERING = 8  # children at once that do
MOMENT = 0.1  # seconds
_HUNG = 4  # times as many as a child pokes at once may hang in it: what hangs holds its memory
_HAND_IN_EVERY = 0.2  # seconds
_ENDS_NOTHING = frozenset({Outcome.NOT_LANDED, Outcome.INFRA_FAILURE})  # the group is poked again

log = logger(__name__)


class IsolatedChildren:
    """The children of the isolated lane. Each has a thread of the lane, which calls this.

    :param together: pokes at once in one child.
    :param report: is called with the reports.
    :param keep: is called with the ids of the groups in hand every few seconds.
    :param watched: see `IsolatedLane`.
    :param watching: watches the thread that enters what it returns.
    """

    def __init__(
        self,
        settings: Settings,
        groups: IsolatedGroups,
        together: int,
        report: Callable[[Sequence[Report]], None],
        keep: Callable[[Sequence[int]], None],
        watched: Callable[[Sequence[int], Sequence[Report], bool | None], None],
        watching: Callable[[], AbstractContextManager[Watched]],
    ) -> None:
        self.tell_room: Callable[[bool], None] = lambda _: None  # told whether the thread takes up what waits
        self.staff: Callable[[], None] = lambda: None  # starts another thread where one is needed
        self._settings = settings
        self._groups = groups
        self._together = together
        self._report = report
        self._keep_in_hand = keep
        self._watched = watched
        self._watching = watching
        self._mine = threading.local()
        self._kept = 0.0
        self._running: set[Child] = set()
        self._lingering: set[threading.Thread] = set()

    @property
    def lingering(self) -> list[threading.Thread]:
        """The threads whose child lives on though its poke has ended."""
        with self._groups.lock:
            return list(self._lingering)

    def kill(self) -> None:
        """Kill all children; the lane is closed."""
        with self._groups.lock:
            running = list(self._running)
        for child in running:
            child.kill()

    @contextmanager
    def under_watch(self) -> Iterator[None]:
        """Have this thread watched, unless it is."""
        if getattr(self._mine, "step", None) is not None:
            yield
            return
        with self._watching() as watched:
            self._mine.step = watched.step
            try:
                yield
            finally:
                self._mine.step = None

    def keep(self) -> None:
        """Take a step, and keep the groups in hand, now and then."""
        self._mine.step()
        if (now := time.monotonic()) - self._kept >= self._settings.heartbeat:
            self._kept = now
            self._keep_in_hand(self._groups.ids())

    def poke_together(self, waiting: FairQueue[Suspect]) -> None:
        """Poke those that wait in one child: until none does, or it ends, or it has had its time, or its fill."""
        child, ends = self._begin(self._together), time.monotonic() + STINT
        seen: list[Report] = []
        heard, handed_in = False, time.monotonic()
        release = self._groups.slots.release
        try:
            while not child.is_over:
                while self._has_room(child, ends) and (suspect := waiting.take()):
                    self._give(child, suspect)
                self.tell_room(waiting is self._groups.together and self._has_room(child, ends))
                self.staff()
                # what is not begun by then never will be: no thread can be started there
                if not child.in_hand or time.monotonic() > ends + self._settings.poke_timeout + START_LIMIT:
                    break
                self.keep()
                for suspect, report in child.hear():
                    heard = True
                    release(suspect.op_classpath)
                    if report.outcome is Outcome.CRASHED:  # memory, files or threads ran out; another may have taken it
                        self._groups.put_alone(suspect)
                    else:
                        seen.append(report)
                if time.monotonic() - handed_in > _HAND_IN_EVERY:
                    self._hand_in(seen)
                    seen, handed_in = [], time.monotonic()
        finally:
            self.tell_room(False)
            self._end(child)
            for suspect in child.in_hand.values():
                release(suspect.op_classpath)
        self._hand_in(seen)
        if child.in_hand and not self._groups.is_closed:
            self._look_into(child, waiting, heard)

    def poke_alone(self, suspect: Suspect) -> None:
        """Poke one in a child of its own: whatever happens there is its doing."""
        child = self._begin(1, alone=True)
        reports: list[Report] = []
        try:
            self._give(child, suspect)
            while child.in_hand and not child.is_over:
                self.keep()
                reports += [report for _, report in child.hear()]
        finally:
            self._end(child)
        if not child.froze:
            self._groups.thawed(suspect.group.id)
        if not child.ready and child.returncode == 1:
            log.error("no child of the isolated lane can be started; its groups are due again")
            self._groups.drop()
        else:
            self._hand_in(reports or self._blamed(child, [suspect]))

    def poke_watched(self, suspects: list[Suspect]) -> None:
        """Poke some in a child that lives on for a while, on a thread of its own: a child ends with its thread."""
        poked = threading.Event()

        def poke() -> None:
            try:
                with self.under_watch():
                    self._watch(suspects, poked)
            except Exception:
                log.exception("the isolated lane failed; its groups are due again")
                self._groups.drop()
            finally:
                with self._groups.lock:
                    self._lingering.discard(thread)
                poked.set()

        thread = threading.Thread(target=poke, daemon=True, name="poke-watched")
        with self._groups.lock:
            self._lingering.add(thread)
        try:
            thread.start()
        except RuntimeError:  # no more threads can be started
            poke()
        while not poked.wait(MOMENT):
            self.keep()

    def _begin(self, together: int, *, alone: bool = False) -> Child:
        child = Child(self._settings, together, alone=alone)
        with self._groups.lock:
            self._running.add(child)
        if self._groups.is_closed:
            child.kill()
        return child

    def _end(self, child: Child) -> None:
        child.end()
        with self._groups.lock:
            self._running.discard(child)

    def _give(self, child: Child, suspect: Suspect) -> None:
        self._groups.take_in_hand([suspect])
        child.give(suspect)

    def _has_room(self, child: Child, ends: float) -> bool:
        """Whether a child may be given more."""
        few = len(child.in_hand) < self._together and child.hung < _HUNG * self._together
        return few and time.monotonic() < ends

    def _hand_in(self, reports: Sequence[Report]) -> None:
        if reports and not self._groups.is_closed:
            try:
                self._report(reports)
            finally:
                self._groups.forget(report.group.id for report in reports)

    def _look_into(self, child: Child, waiting: FairQueue[Suspect], heard: bool) -> None:
        """Find out which group a child that ended with some in its hands died of."""
        self._groups.let_go(child.in_hand.values())
        begun = [child.in_hand.pop(group_id) for group_id in child.began]
        waiting.put(child.in_hand.values())
        if child.importing is not None:
            waiting.put(begun)
            left = waiting.drain()
            own = [suspect for suspect in left if suspect.op_classpath == child.importing]
            waiting.put(suspect for suspect in left if suspect.op_classpath != child.importing)
            if child.poked:  # it may have died of one of these instead
                by_itself: FairQueue[Suspect] = FairQueue(self._groups.slots)
                by_itself.put(own)
                self.poke_together(by_itself)
                self._groups.put_back(waiting, by_itself.drain())  # unless the lane dropped them
            else:
                self._hand_in(self._blamed(child, own))
        elif begun and len(child.poked) == 1:  # or it may have died of what the poke of another left behind
            self._hand_in(self._blamed(child, begun))
        elif begun:
            # most likely it was the last to begin: so the others go on together, and that one by itself
            waiting.put(begun[:-1])
            self._groups.alone.append(begun[-1])
        elif not heard:  # Python could not even start there, or something kills the children: no group's fault
            log.error("no child of the isolated lane works; its groups are due again", returncode=child.returncode)
            self._groups.drop()

    def _watch(self, suspects: list[Suspect], poked: threading.Event) -> None:
        """Poke some in a child of their own, and see whether what they leave behind ends it.

        :param poked: is set when the pokes have ended, which are reported then.
        """
        alone = len(suspects) == 1
        child = self._begin(len(suspects), alone=alone)
        found: dict[int, Report] = {}
        try:
            for suspect in suspects:
                self._give(child, suspect)
            while child.in_hand and not child.is_over:
                self.keep()
                seen = child.hear()
                greedy = [] if alone else [each for each, report in seen if report.outcome is Outcome.CRASHED]
                self._watch_once_more(greedy)
                reports = [report for each, report in seen if each not in greedy]
                found.update((report.group.id, report) for report in reports)
                self._hand_in(reports)
            poked.set()
            ends = time.monotonic() + LINGER
            while not child.is_over and not self._groups.is_closed and time.monotonic() < ends:
                self._mine.step()
                child.hear()
            died = child.ended
        finally:
            self._end(child)
        left = list(child.in_hand.values())
        if left and alone:
            self._hand_in(self._blamed(child, left))
        else:
            self._watch_once_more(left)
        if self._groups.is_closed or child.froze or child.was_killed:
            self._watched([suspect.group.id for suspect in suspects], [], None)
        elif not died:
            self._watched(list(found), [], False)
        elif not alone:
            self._watched([suspect.group.id for suspect in suspects], [], True)
        elif late := [child.blame_late(report) for report in found.values() if report.outcome in _ENDS_NOTHING]:
            self._watched(list(found), late, True)

    def _watch_once_more(self, suspects: Sequence[Suspect]) -> None:
        self._groups.put_watched(suspects)
        self.staff()

    def _blamed(self, child: Child, suspects: Iterable[Suspect]) -> list[Report]:
        """Say what the end of a child means for those that it had in hand; one that froze it comes by itself again.

        So does one whose child was killed from outside, once: what it would have seen is not known. Those of which
        nothing can be said, for their pokes had not begun, are given back: they are due again.
        """
        reports: list[Report] = []
        for suspect in suspects:
            group_id = suspect.group.id
            if child.froze and child.importing is None:
                self._groups.froze(group_id)
            if child.was_killed and self._groups.is_first_kill(group_id):
                self._groups.put_alone(suspect)
            elif (report := child.blame(suspect)) is not None:
                reports.append(report)
            else:
                self._groups.forget([group_id])
        return reports
