"""The groups of the isolated lane: which groups wait, and which a thread has in hand."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sensorpool.poke.child import Suspect
from sensorpool.poke.slots import FairQueue, Slots
from sensorpool.poke.suspect_line import SuspectLine

_FROZEN_KEPT = 10_000  # groups
_NO_THREAD = 0


class IsolatedGroups:
    """Two lines: groups that are poked together, and groups that are poked alone. Safe to share between threads.

    :param slots: the slots of the pokes that go on together.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.together: FairQueue[Suspect] = FairQueue(slots, SuspectLine)
        self.alone: deque[Suspect] = deque()
        self.lock = threading.Lock()
        self.is_closed = False
        self._is_retired = False
        self._holders: dict[int, int] = {}  # the groups of the lane, each with the thread that has it in hand
        self._frozen: set[int] = set()  # groups whose poke froze its child: they are poked alone
        self._killed: set[int] = set()  # groups whose child was killed from outside: they are poked once more

    def add(self, suspects: Iterable[Suspect]) -> int:
        """Take the suspects that are not in the lane already; return how many were taken."""
        with self.lock:
            if self.is_closed or self._is_retired:
                return 0
            taken = [suspect for suspect in suspects if suspect.group.id not in self._holders]
            self._holders.update((suspect.group.id, _NO_THREAD) for suspect in taken)
            alone = [suspect for suspect in taken if suspect.alone or suspect.group.id in self._frozen]
            self.alone.extend(alone)
            alone_ids = {suspect.group.id for suspect in alone}
            self.together.put(suspect for suspect in taken if suspect.group.id not in alone_ids)
        return len(taken)

    def has(self, group_id: int) -> bool:
        """Whether a group is in the lane."""
        with self.lock:
            return group_id in self._holders

    def ids(self) -> list[int]:
        """Return the ids of the lane's groups."""
        with self.lock:
            return list(self._holders)

    def __len__(self) -> int:
        with self.lock:
            return len(self._holders)

    def retire(self) -> list[int]:
        """Take no more groups; remove the waiting groups and return their ids."""
        with self.lock:
            self._is_retired = True
            waiting = [*self.together.drain(), *self.alone]
            self.alone.clear()
            left = [suspect.group.id for suspect in waiting]
            for group_id in left:
                self._holders.pop(group_id, None)
            return left

    def close(self) -> list[int]:
        """Take no more groups; remove all groups and return their ids."""
        with self.lock:
            self.is_closed = True
            left = list(self._holders)
            self.together.drain()
            self.alone.clear()
            self._holders.clear()
            return left

    def next_alone(self, *, watched: bool) -> list[Suspect]:
        """Take the next groups to be poked alone: one group, or several watched groups that share a child.

        :param watched: whether watched groups may be poked now.
        """
        with self.lock:
            for place, suspect in enumerate(self.alone):
                if not suspect.watch:
                    del self.alone[place]
                    return [suspect]
            if not self.alone or not watched:
                return []
            share, taken = self.alone[0].watch, list[Suspect]()
            while self.alone and len(taken) < share and self.alone[0].watch == share:
                taken.append(self.alone.popleft())
            return taken

    def take_in_hand(self, suspects: Iterable[Suspect]) -> None:
        """Note that the calling thread has these suspects in hand."""
        self._hold(threading.get_ident(), suspects)

    def let_go(self, suspects: Iterable[Suspect]) -> None:
        """Note that no thread has these suspects in hand."""
        self._hold(_NO_THREAD, suspects)

    def put_alone(self, suspect: Suspect) -> None:
        """Have a group that a thread had in hand poked alone."""
        self.let_go([suspect])
        self.alone.append(suspect)

    def put_watched(self, suspects: Sequence[Suspect]) -> None:
        """Have these suspects poked once more, each alone in a watched child."""
        self.let_go(suspects)
        with self.lock:
            self.alone.extend(replace(suspect, watch=1) for suspect in suspects if suspect.group.id in self._holders)

    def put_back(self, line: FairQueue[Suspect], suspects: Iterable[Suspect]) -> None:
        """Put the suspects that are still in the lane back into a line."""
        with self.lock:
            line.put(suspect for suspect in suspects if suspect.group.id in self._holders)

    def forget(self, group_ids: Iterable[int]) -> None:
        """Forget groups: they are due again."""
        with self.lock:
            for group_id in group_ids:
                self._holders.pop(group_id, None)
                self._killed.discard(group_id)

    def drop(self) -> None:
        """Drop the waiting groups and the groups that the calling thread has in hand: they are due again."""
        dropped = (_NO_THREAD, threading.get_ident())
        with self.lock:
            self.together.drain()
            self.alone.clear()
            self._holders = {group_id: holder for group_id, holder in self._holders.items() if holder not in dropped}

    def froze(self, group_id: int) -> None:
        """Note that a group's poke froze its child: the group is poked alone from now on."""
        if len(self._frozen) < _FROZEN_KEPT:
            self._frozen.add(group_id)

    def thawed(self, group_id: int) -> None:
        """Note that a group's poke did not freeze its child this time."""
        self._frozen.discard(group_id)

    def is_first_kill(self, group_id: int) -> bool:
        """Note a kill from outside of a group's child; return whether it is the first since the group came."""
        if group_id in self._killed or self.is_closed:
            return False
        self._killed.add(group_id)
        return True

    def _hold(self, thread: int, suspects: Iterable[Suspect]) -> None:
        with self.lock:
            for suspect in suspects:
                if suspect.group.id in self._holders:
                    self._holders[suspect.group.id] = thread
