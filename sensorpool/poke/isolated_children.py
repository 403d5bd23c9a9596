"""How suspects are poked in child processes: together, alone, or watched; and what the end of a child means.

If a child dies with several groups in hand, the last one that began is poked again alone, and the others go on. A crash
counts against its group only if the living parent saw it in a child that poked no other group, because a thread or
timer that an earlier poke left may end the child. A kill from outside never counts. A child that dies of importing a
class before its first poke counts against all groups of that class.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.child import START_LIMIT, Child, Suspect
from sensorpool.poke.isolated_groups import IsolatedGroups
from sensorpool.poke.renewal import Renewal
from sensorpool.poke.slots import FairQueue
from sensorpool.poke.watchdog import Watched

STINT = 30.0  # seconds after which the groups in the other line have their turn
LINGER = 5.0  # seconds for which a watched child lives on, to see whether what a poke left behind ends it
LINGERING = 8  # the most watched children that live on at once
MOMENT = 0.1  # seconds
_HUNG = 4  # a child may have so many times `together` hanging pokes, which keep their memory
_HAND_IN_EVERY = 0.2  # seconds
_ENDS_NOTHING = frozenset({Outcome.NOT_LANDED, Outcome.INFRA_FAILURE})  # the group is poked again

log = logger(__name__)


class IsolatedChildren:
    """The children of the isolated lane. Each has a thread of the lane, which calls this.

    :param together: pokes at once in one child.
    :param report: is called with the reports.
    :param keep: is called every few seconds with the ids of the lane's groups.
    :param watched: see `IsolatedLane`.
    :param watching: returns a context in which the calling thread is watched.
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
        self.tell_room: Callable[[bool], None] = lambda _: None  # told whether the calling thread takes up what waits
        self.start_thread: Callable[[], None] = lambda: None  # starts another thread where one is needed
        self._settings = settings
        self._groups = groups
        self._together = together
        self._report = report
        self._keep_in_hand = keep
        self._watched = watched
        self._watching = watching
        self._mine = threading.local()
        self._renewal = Renewal(settings.heartbeat)
        self._running: set[Child] = set()
        self._lingering: set[threading.Thread] = set()

    @property
    def lingering(self) -> list[threading.Thread]:
        """The threads of watched children, which live on after their pokes."""
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
        """Have this thread watched, unless it is watched already."""
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
        """Take a step for the watchdog, and call ``keep`` once a heartbeat."""
        self._mine.step()
        self._renewal.if_due(lambda: self._keep_in_hand(self._groups.ids()))

    def poke_together(self, waiting: FairQueue[Suspect]) -> None:
        """Poke a line in one child: until the line is empty, the child ends, its stint is over, or it has its fill."""
        child, ends = self._begin(self._together), time.monotonic() + STINT
        seen: list[Report] = []
        heard, handed_in = False, time.monotonic()
        release = self._groups.slots.release
        try:
            while not child.is_over:
                while self._has_room(child, ends) and (suspect := waiting.take()):
                    self._give(child, suspect)
                self.tell_room(waiting is self._groups.together and self._has_room(child, ends))
                self.start_thread()
                # a poke that has not begun by then never will: the child cannot start a thread
                if not child.in_hand or time.monotonic() > ends + self._settings.poke_timeout + START_LIMIT:
                    break
                self.keep()
                for suspect, report in child.hear():
                    heard = True
                    release(suspect.op_classpath)
                    if report.outcome is Outcome.CRASHED:  # memory, files or threads ran out: see which group took them
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
        """Poke one group in a child of its own: whatever happens there is its doing."""
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
        """Poke groups in a child that lives on for a while, on a thread of its own: a child ends with its thread."""
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
        except RuntimeError:  # no thread can be started
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
        """Whether a child may be given one more group."""
        few = len(child.in_hand) < self._together and child.hung < _HUNG * self._together
        return few and time.monotonic() < ends

    def _hand_in(self, reports: Sequence[Report]) -> None:
        if reports and not self._groups.is_closed:
            try:
                self._report(reports)
            except Unreachable as error:  # those in hand and those that wait are poked all the same
                log.warning("results of groups that are poked apart are lost; they are due again", error=str(error))
            finally:
                self._groups.forget(report.group.id for report in reports)

    def _end_watch(self, group_ids: Sequence[int], late: Sequence[Report], died: bool | None) -> None:
        try:
            self._watched(group_ids, late, died)
        except Unreachable as error:
            log.warning("it is not noted what a watched child ended by", error=str(error))

    def _look_into(self, child: Child, waiting: FairQueue[Suspect], heard: bool) -> None:
        """Find out which group ended a child that had several in hand."""
        self._groups.let_go(child.in_hand.values())
        begun = [child.in_hand.pop(group_id) for group_id in child.began]
        waiting.put(child.in_hand.values())
        if child.importing is not None:
            waiting.put(begun)
            line = waiting.drain()
            own = [suspect for suspect in line if suspect.op_classpath == child.importing]
            waiting.put(suspect for suspect in line if suspect.op_classpath != child.importing)
            if child.poked:  # one of the poked groups may have ended it instead
                by_itself: FairQueue[Suspect] = FairQueue(self._groups.slots)
                by_itself.put(own)
                self.poke_together(by_itself)
                self._groups.put_back(waiting, by_itself.drain())  # unless the lane dropped them
            else:
                self._hand_in(self._blamed(child, own))
        elif begun and len(child.poked) == 1:  # no other group was poked, so no other can be to blame
            self._hand_in(self._blamed(child, begun))
        elif begun:
            # most likely the last one that began: it is poked alone, and the others go on together
            waiting.put(begun[:-1])
            self._groups.alone.append(begun[-1])
        elif not heard:  # Python did not start, or the children are killed: no group is to blame
            log.error("no child of the isolated lane works; its groups are due again", returncode=child.returncode)
            self._groups.drop()

    def _watch(self, suspects: list[Suspect], poked: threading.Event) -> None:
        """Poke groups in a child of their own, and see whether what they leave behind ends it.

        :param poked: is set when the pokes have ended; by then they are reported.
        """
        alone = len(suspects) == 1
        child = self._begin(len(suspects), alone=alone)
        ended: dict[int, Report] = {}
        try:
            for suspect in suspects:
                self._give(child, suspect)
            while child.in_hand and not child.is_over:
                self.keep()
                seen = child.hear()
                greedy = [] if alone else [suspect for suspect, report in seen if report.outcome is Outcome.CRASHED]
                self._watch_once_more(greedy)
                reports = [report for suspect, report in seen if suspect not in greedy]
                ended.update((report.group.id, report) for report in reports)
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
            self._end_watch([suspect.group.id for suspect in suspects], [], None)
        elif not died:
            self._end_watch(list(ended), [], False)
        elif not alone:
            self._end_watch([suspect.group.id for suspect in suspects], [], True)
        elif late := [child.blame_late(report) for report in ended.values() if report.outcome in _ENDS_NOTHING]:
            self._end_watch(list(ended), late, True)

    def _watch_once_more(self, suspects: Sequence[Suspect]) -> None:
        self._groups.put_watched(suspects)
        self.start_thread()

    def _blamed(self, child: Child, suspects: Iterable[Suspect]) -> list[Report]:
        """Report what the end of a child means for the groups in hand.

        A group that froze the child is poked alone from now on. A group whose child was killed from outside is poked
        alone once more, because its answer is not known. A group whose poke had not begun is given back: it is due
        again.
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
