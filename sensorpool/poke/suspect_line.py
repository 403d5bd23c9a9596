"""The order in which the suspects of one class have their turns.

First those whose deadline has passed, the earliest first: an instance whose time is up ends with its next poke. Then
those that were never seen to hang, and then the others; either in the order in which they came.
"""

import heapq
import time
from collections import deque
from collections.abc import Iterator

from sensorpool.poke.child import Suspect


class SuspectLine:
    """A line of suspects, with what a deque has that `slots.Waiting` asks of it. Each group is in it once."""

    def __init__(self) -> None:
        self._here: dict[int, Suspect] = {}  # by group; what the lines below name besides has gone already
        self._lines: tuple[deque[int], deque[int]] = (deque(), deque())  # unknown ones, and those that hung before
        self._deadlines: list[tuple[float, int]] = []  # a heap: when, and whose

    def append(self, suspect: Suspect) -> None:
        """Add one, or take what is known of it now for what was known."""
        group_id = suspect.group.id
        if group_id not in self._here:
            self._lines[suspect.hung].append(group_id)
        self._here[group_id] = suspect
        if suspect.deadline is not None:
            heapq.heappush(self._deadlines, (suspect.deadline, group_id))

    def popleft(self) -> Suspect:
        """Take the next one out.

        :raises IndexError: when there is none.
        """
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, group_id = heapq.heappop(self._deadlines)
            found = self._here.get(group_id)
            if found is not None and found.deadline == deadline:
                return self._here.pop(group_id)
        for line in self._lines:
            while line:
                if (found := self._here.pop(line.popleft(), None)) is not None:
                    return found
        raise IndexError("nobody waits")

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[Suspect]:
        return iter(list(self._here.values()))
