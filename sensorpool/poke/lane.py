"""The base of the lanes: pokes that wait for a slot, and the reports since the job last asked."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sensorpool.model.not_landed import Seen
from sensorpool.model.values import DueGroup
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.slots import FairQueue, Slots

Item = TypeVar("Item")
AnyWork = TypeVar("AnyWork", bound=Any)  # something to poke, of one sensor class


def drained(queue: deque[Item]) -> list[Item]:
    """Take all items out of a queue that other threads fill or empty."""
    taken: list[Item] = []
    try:
        while True:
            taken.append(queue.popleft())
    except IndexError:
        return taken


class Undecided(NamedTuple):
    """Groups of a call for many that need a poke of their own."""

    units: Sequence[Any]


class Work:
    """Something to poke on a thread: one group, or several of one class."""

    __slots__ = ("began", "op_classpath")

    op_classpath: str
    began: float  # when the poke that goes on began, by the monotonic clock
    is_quick = False  # whether its pokes are known to be quick: more threads would not make them faster

    @property
    def groups(self) -> list[DueGroup]:
        """The groups that have not been poked."""
        raise NotImplementedError

    def poke(self) -> Sequence[Seen | Undecided]:
        """Poke; return what was seen. Raises nothing."""
        raise NotImplementedError

    def overran(self, limit: float) -> Sequence[Seen | Undecided]:
        """Report what was seen so far, and that the poke that goes on overran its limit (seconds)."""
        raise NotImplementedError

    def rest(self) -> "Iterable[Work]":
        """Take back the units whose poke has not begun."""
        return ()


class Lane(Generic[AnyWork]):
    """Pokes that wait for a slot, and pokes that go on.

    :param slots: how many pokes at once; lanes may share them.
    :param poke_timeout: seconds.
    :param reusable: the threads that the lane pokes on.
    """

    def __init__(self, slots: Slots, poke_timeout: float, reusable: ReusableThreads | None = None) -> None:
        self.concurrency = slots.concurrency
        self.abandoned = 0  # threads that were given up; a thread of a `ThreadLane` counts until its poke returns
        self._slots = slots
        self._poke_timeout = poke_timeout
        self._reusable = reusable or ReusableThreads()
        self._waiting: FairQueue[AnyWork] = FairQueue(slots)
        self._done: deque[Sequence[Any]] = deque()

    def queued_of(self, op_classpath: str) -> int:
        """How many pieces of work of a class wait."""
        return self._waiting.of_class(op_classpath)

    def withdraw(self) -> list[AnyWork]:
        """Take back the work that has not begun."""
        return self._waiting.drain()

    def collect(self) -> list[Sequence[Any]]:
        """Return what pokes saw since the last call: reports, and values that stand for many."""
        return drained(self._done)
