"""The base of the lanes: pokes that wait for a slot, and the reports since the job last asked."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from sensorpool.model.not_landed import Seen
from sensorpool.poke.queues import drained
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.slots import FairQueue, Slots

Work = TypeVar("Work", bound=Any)  # something to poke, of one sensor class


class Lane(Generic[Work]):
    """Pokes that wait for a slot, and pokes that go on.

    :param slots: how many pokes at once; lanes may share them.
    :param poke_timeout: seconds.
    :param reusable: the threads that the lane pokes on.
    """

    def __init__(self, slots: Slots, poke_timeout: float, reusable: ReusableThreads | None = None) -> None:
        self.abandoned = 0  # threads that were given up; a thread of a `ThreadLane` counts until its poke returns
        self._slots = slots
        self._poke_timeout = poke_timeout
        self._reusable = reusable or ReusableThreads()
        self._waiting: FairQueue[Work] = FairQueue(slots)
        self._done: deque[Sequence[Seen]] = deque()

    @property
    def queued(self) -> int:
        """How many pieces of work wait."""
        return len(self._waiting)

    @property
    def takeable(self) -> int:
        """How many of them could begin now."""
        return self._waiting.takeable

    def queued_of(self, op_classpath: str) -> int:
        """How many pieces of work of a class wait."""
        return self._waiting.of_class(op_classpath)

    def withdraw(self) -> list[Work]:
        """Take back the work that has not begun."""
        return self._waiting.drain()

    def collect(self) -> list[Sequence[Seen]]:
        """Return what pokes saw since the last call."""
        return drained(self._done)
