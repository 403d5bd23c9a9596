"""Which group is poked next: the slots of a process are shared out between the sensor classes that want them.

The next slot goes to the class that holds the fewest, and no class ever holds all of them. So a class whose backend is
slow, or hangs, waits for its own pokes only: other classes always find a slot.
"""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

_KEPT_FREE = 8  # a single class may not have one slot in so many
_FEW = 4  # with fewer slots than this, a class may have all
_ALL = ""


class Classed(Protocol):
    """Something to poke, of one class."""

    @property
    def op_classpath(self) -> str:
        """The class."""


Item = TypeVar("Item", bound=Classed)


class Slots:
    """The slots of a process: so many pokes go on at once, whichever jobs began them. Safe to share between threads."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.most_of_a_class = concurrency - (max(1, concurrency // _KEPT_FREE) if concurrency >= _FEW else 0)
        self.busy: Counter[str] = Counter()  # by class
        self.taken = 0
        self.want_interpreter: set[str] = set()  # classes of whose pokes more at once would not be quicker
        self._full_since: dict[str, float] = {}  # since when a class holds all it may; "": since when no slot is free
        self.lock = threading.Lock()

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self.concurrency - self.taken

    def took(self, op_classpath: str) -> None:
        """Give a slot to a class. Under the lock."""
        self.taken += 1
        self.busy[op_classpath] += 1
        if self.busy[op_classpath] >= self.most_of_a_class:
            self._full_since[op_classpath] = time.monotonic()
        if self.taken >= self.concurrency:
            self._full_since[_ALL] = time.monotonic()

    def is_stuck(self, op_classpath: str, seconds: float) -> bool:
        """Whether a class could get no slot for so many seconds: no poke that has one has returned."""
        with self.lock:
            began = min(self._full_since.get(name, math.inf) for name in (op_classpath, _ALL))
        return time.monotonic() - began >= seconds

    def release(self, op_classpath: str) -> None:
        """Give a slot back."""
        with self.lock:
            self.taken -= 1
            self.busy[op_classpath] -= 1
            self._full_since.pop(op_classpath, None)
            self._full_since.pop(_ALL, None)
            if not self.busy[op_classpath]:
                del self.busy[op_classpath]


class FairQueue(Generic[Item]):
    """The waiting work of one lane, by class. Safe to share between threads.

    :param line: makes the line of a class: a deque, or a line with another order.
    """

    def __init__(self, slots: Slots, line: Callable[[], Any] = deque) -> None:
        self._slots = slots
        self._line = line
        self._by_class: dict[str, Any] = {}

    def put(self, items: Iterable[Item]) -> None:
        """Add items, each to the line of its class."""
        with self._slots.lock:
            for item in items:
                if (line := self._by_class.get(item.op_classpath)) is None:
                    line = self._by_class[item.op_classpath] = self._line()
                line.append(item)

    def take(self) -> Item | None:
        """Take the next item, and a slot for it; None if no item waits, or the waiting ones can have no slot."""
        slots = self._slots
        with slots.lock:
            if slots.taken >= slots.concurrency:
                return None
            busy, most = slots.busy, slots.most_of_a_class
            op_classpath = min(self._by_class, key=busy.__getitem__, default=None)
            if op_classpath is None or busy[op_classpath] >= most:
                return None
            items = self._by_class[op_classpath]
            item: Item = items.popleft()
            if not items:
                del self._by_class[op_classpath]
            slots.took(op_classpath)
            return item

    @property
    def takeable(self) -> int:
        """How many items could be taken now."""
        slots = self._slots
        with slots.lock:
            room = ((slots.most_of_a_class - slots.busy[name], len(items)) for name, items in self._by_class.items())
            return max(0, min(slots.free, sum(min(most, number) for most, number in room)))

    def drain(self) -> list[Item]:
        """Take all items out, without slots."""
        with self._slots.lock:
            taken = [item for items in self._by_class.values() for item in items]
            self._by_class.clear()
            return taken

    def __len__(self) -> int:
        with self._slots.lock:
            return sum(map(len, self._by_class.values()))

    def classes(self) -> list[str]:
        """Return the classes of the items that wait."""
        with self._slots.lock:
            return list(self._by_class)

    def of_class(self, op_classpath: str) -> int:
        """How many items of a class wait."""
        with self._slots.lock:
            return len(self._by_class.get(op_classpath, ()))
