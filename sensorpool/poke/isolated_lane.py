"""The isolated lane: suspects are poked in child processes, so that a poke that hangs or crashes costs its own group.

Suspects are groups whose poke overran, and groups that a dead process had in hand. They are poked together first,
their classes in turn; some are poked alone (`isolated_children` says which).

Some suspects are watched, because a thread or timer that they leave behind may end their process later
(`late_crashes`). Their child lives on for a while. The more late crashes a group has, the fewer groups share its child,
until it is alone in one.

A wide lane has several children at once, as many as the waiting groups ask for, each with a share of them. So a child
that freezes costs its share only, and a child that is full of hanging pokes gets no more groups.
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
_IN_A_CHILD = 64  # pokes at once in one child of a wide lane
_CLOSING = 2.0  # seconds that threads have to end once their children are killed

log = logger(__name__)


class IsolatedLane:
    """Pokes suspects on threads of its own, one for each child, so that no job waits for them.

    :param report: is called with the reports, on one of these threads.
    :param keep: is called every few seconds with the ids of the lane's groups, on one of these threads.
    :param width: pokes at once.
    :param watched: is called when a watched child has ended: with its groups, with a late report of a group that was
        alone in it, and with whether the child died of what the pokes left behind (None: not known).
    :param watching: returns a context in which the calling thread is watched.
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
        # one more, because a child at the end of its stint waits for its last pokes
        self._most_children = 1 if width <= TOGETHER else -(-width // in_a_child) + 1
        self._groups = IsolatedGroups(Slots(width))
        self._children = IsolatedChildren(settings, self._groups, in_a_child, report, keep, watched, watching)
        self._children.tell_room, self._children.start_thread = self._tell_room, self._start_thread
        self._threads: set[threading.Thread] = set()
        self._with_room: set[threading.Thread] = set()  # the threads that will take up what waits
        self._with_one: set[threading.Thread] = set()  # the threads that poke a group alone

    def offer(self, suspects: Iterable[Suspect]) -> int:
        """Take the suspects that are not in the lane already; return how many were taken.

        :raises RuntimeError: when no thread can be started.
        """
        taken = self._groups.add(suspects)
        self._start_thread()
        return taken

    def has(self, group_id: int) -> bool:
        """Whether a group is in the lane."""
        return self._groups.has(group_id)

    def __len__(self) -> int:
        return len(self._groups)

    def retire(self) -> list[int]:
        """Take no more groups; return the ids of the waiting ones, which are not reported. Begun pokes go on."""
        return self._groups.retire()

    def close(self) -> list[int]:
        """End the children and their threads; return the ids of the lane's groups, which are not reported."""
        left = self._groups.close()
        self._children.kill()
        with self._groups.lock:
            threads = [*self._threads]
        until = time.monotonic() + _CLOSING
        for thread in [*threads, *self._children.lingering]:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        return left

    def _start_thread(self) -> None:
        """Start another thread, with a child of its own, if groups wait that no thread has time for."""
        thread = threading.Thread(target=self._work, daemon=True, name="poke-isolated")
        with self._groups.lock:
            if self._groups.is_closed or len(self._threads) >= self._most_children or not self._is_wanted():
                return
            self._threads.add(thread)
            self._with_room.add(thread)
        try:
            thread.start()
        except BaseException:  # no thread can be started
            with self._groups.lock:
                self._leave(thread)
            raise

    def _is_wanted(self) -> bool:
        """Whether one more thread would have work. Under the lock."""
        if self._with_room:
            return False
        return self._groups.together.takeable > 0 or (bool(self._groups.alone) and not self._with_one)

    def _leave(self, thread: threading.Thread) -> None:
        """Remove a thread from the sets. Under the lock."""
        for threads in (self._threads, self._with_room, self._with_one):
            threads.discard(thread)

    def _tell_room(self, has_room: bool) -> None:
        """Note whether the calling thread will take up what waits."""
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
        self._start_thread()
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
