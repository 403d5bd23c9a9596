"""The order in which the suspects of one class have their turns.

First come groups whose deadline has passed, the earliest first: an instance whose time is up ends with its next poke.
Then come groups that were never seen to hang, and then the rest; both in the order in which they came.
"""

import heapq
import time
from collections import deque
from collections.abc import Iterator

from sensorpool.poke.child import Suspect


class SuspectLine:
    """A line of suspects, with the methods of a deque that `slots.FairQueue` calls. Each group is in it once."""

    def __init__(self) -> None:
        self._waiting: dict[int, Suspect] = {}  # by group id; other ids in the lines below were taken out already
        self._lines: tuple[deque[int], deque[int]] = (deque(), deque())  # ids of groups that never hung, and that did
        self._deadlines: list[tuple[float, int]] = []  # a heap of deadlines with group ids

    def append(self, suspect: Suspect) -> None:
        """Add a suspect, or replace the one of the same group."""
        group_id = suspect.group.id
        if group_id not in self._waiting:
            self._lines[suspect.hung].append(group_id)
        self._waiting[group_id] = suspect
        if suspect.deadline is not None:
            heapq.heappush(self._deadlines, (suspect.deadline, group_id))

    def popleft(self) -> Suspect:
        """Take the next suspect out.

        :raises IndexError: when none waits.
        """
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, group_id = heapq.heappop(self._deadlines)
            suspect = self._waiting.get(group_id)
            if suspect is not None and suspect.deadline == deadline:
                return self._waiting.pop(group_id)
        for line in self._lines:
            while line:
                if (suspect := self._waiting.pop(line.popleft(), None)) is not None:
                    return suspect
        raise IndexError("no suspect waits")

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Suspect]:
        return iter(list(self._waiting.values()))
