"""The isolated lane: suspects are poked in child processes, so that one that hangs or crashes costs its own group.

Suspects are groups whose poke overran, and those that a dead process had in its hands. They are poked together first,
their classes in turn; some are poked by themselves (`isolated_children` tells which).

Some are watched: what they leave behind may end their process later (`late_crashes`). Their child lives on for a while,
and the more often that happened, the fewer share one, until one is alone in it.

A lane that is wide has several children at once, each with its share: as many as what waits asks for. So a child that
freezes whole costs its share, and one that is full of pokes that hang is left by the others in time.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import Report
from sensorpool.poke.child import Suspect
from sensorpool.poke.isolated_children import LINGERING, MOMENT, STINT, IsolatedChildren
from sensorpool.poke.isolated_groups import IsolatedGroups
from sensorpool.poke.slots import Slots
from sensorpool.poke.watchdog import Watched, unwatched

TOGETHER = 16  # pokes at once in a lane that is not wide
_IN_A_CHILD = 64  # pokes at once in one child of a lane that is
_CLOSING = 2.0  # seconds that threads have to end once their children are killed

log = logger(__name__)


class IsolatedLane:
    """Pokes suspects on threads of its own, one for each child, so that no job waits for them.

    :param report: is called with the reports, on one of these threads.
    :param keep: is called with the ids of the groups in hand every few seconds, on one of these threads.
    :param width: pokes at once.
    :param watched: is called with groups that are watched once their child has ended, with what each of them did to it
        that was alone in it, and whether it died of what they left behind (None: not known).
    :param watching: watches the thread that enters what it returns.
    """

    def __init__(
        self,
        settings: Settings,
        report: Callable[[Sequence[Report]], None],
        keep: Callable[[Sequence[int]], None],
        width: int = TOGETHER,
        watched: Callable[[Sequence[int], Sequence[Report], bool | None], None] = lambda *_: None,
        watching: Callable[[], AbstractContextManager[Watched]] = unwatched,
    ) -> None:
        in_a_child = min(width, _IN_A_CHILD)
        # one more, for the last one holds up the next until its pokes have ended
        self._most_children = 1 if width <= TOGETHER else -(-width // in_a_child) + 1
        self._groups = IsolatedGroups(Slots(width))
        self._children = IsolatedChildren(settings, self._groups, in_a_child, report, keep, watched, watching)
        self._children.tell_room, self._children.staff = self._tell_room, self._staff
        self._threads: set[threading.Thread] = set()
        self._with_room: set[threading.Thread] = set()  # those that will take up what waits
        self._with_one: set[threading.Thread] = set()  # those that poke one by itself

    def offer(self, suspects: Iterable[Suspect]) -> int:
        """Take these on, save those that are here already; return how many were taken.

        :raises RuntimeError: when no more threads can be started.
        """
        taken = self._groups.add(suspects)
        self._staff()
        return taken

    def has(self, group_id: int) -> bool:
        """Whether a group is here."""
        return self._groups.has(group_id)

    def __len__(self) -> int:
        return len(self._groups)

    def retire(self) -> list[int]:
        """Take nothing more; return the groups that wait, which are not reported. Pokes that have begun go on."""
        return self._groups.retire()

    def close(self) -> list[int]:
        """End the children and their threads; return the groups that were here, which are not reported."""
        left = self._groups.close()
        self._children.kill()
        with self._groups.lock:
            threads = [*self._threads]
        until = time.monotonic() + _CLOSING
        for thread in [*threads, *self._children.lingering]:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        return left

    def _staff(self) -> None:
        """Start another thread if there is something that none has time for. Each makes its own children."""
        thread = threading.Thread(target=self._work, daemon=True, name="poke-isolated")
        with self._groups.lock:
            if self._groups.is_closed or len(self._threads) >= self._most_children or not self._is_wanted():
                return
            self._threads.add(thread)
            self._with_room.add(thread)
        try:
            thread.start()
        except BaseException:  # no more threads can be started
            with self._groups.lock:
                self._leave(thread)
            raise

    def _is_wanted(self) -> bool:
        """Whether there is something to do for one more thread. Under the lock."""
        if self._with_room:
            return False
        return self._groups.together.takeable > 0 or (bool(self._groups.alone) and not self._with_one)

    def _leave(self, thread: threading.Thread) -> None:
        """Take a thread off the lists. Under the lock."""
        for threads in (self._threads, self._with_room, self._with_one):
            threads.discard(thread)

    def _tell_room(self, has_room: bool) -> None:
        """Tell the other threads whether this one will take up what waits."""
        with self._groups.lock:
            (self._with_room.add if has_room else self._with_room.discard)(threading.current_thread())

    def _work(self) -> None:
        with self._children.under_watch():
            self._poke_all()

    def _poke_all(self) -> None:
        me, groups = threading.current_thread(), self._groups
        while True:
            with groups.lock:
                self._with_room.discard(me)
                if not self._is_wanted():
                    self._leave(me)  # under the lock: the next offer starts another
                    return
                alone_first = bool(groups.alone) and not self._with_one and len(self._threads) > 1
                if not alone_first:
                    self._with_room.add(me)
            try:
                if not alone_first and groups.together.takeable > 0:
                    self._children.poke_together(groups.together)
                self._poke_some_alone(me)
            except Exception:
                log.exception("the isolated lane failed; its groups are due again")
                groups.drop()

    def _poke_some_alone(self, me: threading.Thread) -> None:
        with self._groups.lock:
            self._with_room.discard(me)
            self._with_one.add(me)
        self._staff()
        try:
            ends = time.monotonic() + STINT
            while time.monotonic() < ends:
                if some := self._groups.next_alone(watched=len(self._children.lingering) < LINGERING):
                    if some[0].watch:
                        self._children.poke_watched(some)
                    else:
                        self._children.poke_alone(some[0])
                elif self._groups.alone and not self._groups.together.takeable:
                    self._children.keep()
                    time.sleep(MOMENT)
                else:
                    return
        finally:
            with self._groups.lock:
                self._with_one.discard(me)
