"""Which group is poked next: the slots of a process are shared out between the sensor classes that want them.

The next slot goes to the class that holds the fewest, and no class ever holds all of them. So a class whose backend is
slow, or hangs, waits for its own pokes only: other classes always find a slot. A class whose pokes compute holds a few.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from sensorpool.poke.class_limits import ClassLimits

_KEPT_FREE = 8  # a single class may not have one slot in so many
_FEW = 4  # with fewer slots than this, a class may have all


class Classed(Protocol):
    """Something to poke, of one class."""

    @property
    def op_classpath(self) -> str:
        """The class."""


Item = TypeVar("Item", bound=Classed)


class Slots:
    """The slots of a process: so many pokes go on at once, whichever jobs began them. Safe to share between threads.

    :param of_threads: whether they are of pokes on threads, of which too many at once wait for the interpreter.
    """

    def __init__(self, concurrency: int, *, of_threads: bool = False) -> None:
        self.concurrency = concurrency
        self.most_of_a_class = concurrency - (max(1, concurrency // _KEPT_FREE) if concurrency >= _FEW else 0)
        self.busy: Counter[str] = Counter()  # by class
        self.taken = 0
        self.lock = threading.Lock()
        self._limits = ClassLimits(self.most_of_a_class) if of_threads else None

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self.concurrency - self.taken

    def most_of(self, op_classpath: str) -> int:
        """Return how many slots a class may hold now. Under the lock."""
        return self.most_of_a_class if self._limits is None else self._limits.of(op_classpath)

    def took(self, op_classpath: str) -> None:
        """Give a slot to a class. Under the lock."""
        self.taken += 1
        self.busy[op_classpath] += 1
        if self._limits is not None and self.busy[op_classpath] == 1:
            self._limits.first_begins(op_classpath)

    def look(self) -> None:
        """Look how many slots each class may hold."""
        if self._limits is None:
            return
        with self.lock:
            self._limits.look(self.busy)

    def release(self, op_classpath: str, cpu: float = 0.0) -> None:
        """Give a slot back.

        :param cpu: seconds of the processor that the poke took.
        """
        with self.lock:
            self.released(op_classpath, cpu)

    def released(self, op_classpath: str, cpu: float) -> None:
        """Take a slot back from a class. Under the lock."""
        if self._limits is not None:
            self._limits.ended(op_classpath, cpu)
        self.taken -= 1
        self.busy[op_classpath] -= 1
        if not self.busy[op_classpath]:
            del self.busy[op_classpath]


class FairQueue(Generic[Item]):
    """The waiting work of one lane, by class. Safe to share between threads."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._by_class: dict[str, deque[Item]] = {}

    def put(self, items: Iterable[Item]) -> None:
        """Add items, each to the line of its class."""
        with self._slots.lock:
            for item in items:
                self._by_class.setdefault(item.op_classpath, deque()).append(item)

    def take(self) -> Item | None:
        """Take the next item, and a slot for it; None if no item waits, or the waiting ones can have no slot."""
        with self._slots.lock:
            return self._take()

    def take_after(self, op_classpath: str, cpu: float) -> Item | None:
        """Give the slot of an item back, and take the next item, with no other taker between the two.

        :param cpu: seconds of the processor that the poke took.
        """
        with self._slots.lock:
            self._slots.released(op_classpath, cpu)
            return self._take()

    def _take(self) -> Item | None:
        slots = self._slots
        if slots.taken >= slots.concurrency:
            return None
        busy = slots.busy
        may_have = [name for name in self._by_class if busy[name] < slots.most_of(name)]
        if not may_have:
            return None
        op_classpath = min(may_have, key=busy.__getitem__)
        items = self._by_class.pop(op_classpath)
        item = items.popleft()
        if items:
            self._by_class[op_classpath] = items  # the last of those that hold as many
        slots.took(op_classpath)
        return item

    @property
    def takeable(self) -> int:
        """How many items could be taken now."""
        slots = self._slots
        with slots.lock:
            room = ((slots.most_of(name) - slots.busy[name], len(items)) for name, items in self._by_class.items())
            return min(slots.free, sum(max(0, min(most, number)) for most, number in room))

    def drain(self) -> list[Item]:
        """Take all items out, without slots."""
        with self._slots.lock:
            taken = [item for items in self._by_class.values() for item in items]
            self._by_class.clear()
            return taken

    def __len__(self) -> int:
        with self._slots.lock:
            return sum(map(len, self._by_class.values()))

    def of_class(self, op_classpath: str) -> int:
        """How many items of a class wait."""
        with self._slots.lock:
            return len(self._by_class.get(op_classpath, ()))
