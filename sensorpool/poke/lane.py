"""What the lanes have in common: what waits for a slot, and what was reported since the job last asked."""

from collections import deque
from typing import Any, Generic, TypeVar

from sensorpool.model.values import Report
from sensorpool.poke.queues import drained
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.slots import FairQueue, Slots

Work = TypeVar("Work", bound=Any)  # of one class each


class Lane(Generic[Work]):
    """Pokes that wait for a slot, and those that go on.

    :param slots: how many pokes at once; lanes may share them.
    :param poke_timeout: seconds.
    :param reusable: the threads that the lane pokes on.
    """

    def __init__(self, slots: Slots, poke_timeout: float, reusable: ReusableThreads | None = None) -> None:
        self.abandoned = 0  # threads that were given up: those of a `ThreadLane` count until they come back
        self._slots = slots
        self._poke_timeout = poke_timeout
        self._reusable = reusable or ReusableThreads()
        self._waiting: FairQueue[Work] = FairQueue(slots)
        self._done: deque[list[Report]] = deque()

    @property
    def queued(self) -> int:
        """How much waits to be begun."""
        return len(self._waiting)

    @property
    def takeable(self) -> int:
        """How much of it could be begun now."""
        return self._waiting.takeable

    def queued_of(self, op_classpath: str) -> int:
        """How much of a class waits to be begun."""
        return self._waiting.of_class(op_classpath)

    def withdraw(self) -> list[Work]:
        """Take back what has not begun."""
        return self._waiting.drain()

    def collect(self) -> list[list[Report]]:
        """Return what has been reported since the last call."""
        return drained(self._done)
