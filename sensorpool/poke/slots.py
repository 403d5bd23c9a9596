"""Which group is poked next: the slots of a process are shared out between the sensor classes that want them.

The next slot goes to the class that holds the fewest, and no class ever holds all of them. So a class whose backend is
slow, or hangs, waits for its own pokes only: other classes always find a slot.

A class whose pokes compute holds a few. Threads that want the interpreter wait for one another: with many of them, each
poke takes twice the CPU, and the last one ends later. So the CPU of a class is compared with the time that went by.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

_KEPT_FREE = 8  # a single class may not have one slot in so many
_FEW = 4  # with fewer slots than this, a class may have all
FEWEST = 8  # pokes of a class that go on at once, whatever they want
WINDOW = 0.05  # seconds between two looks
# CPU seconds of a class in a second: from the first number on its pokes compute; from the second on they do so beside
# the interpreter, so that more of them help; below the third they wait for answers
_COMPUTES, _BESIDE, _WAITS = 0.8, 1.5, 0.5


class _Class:
    """What was seen of a class since its window began."""

    __slots__ = ("began", "ended", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def begin(self, now: float) -> None:
        """Begin a window."""
        self.began, self.ended, self.used = now, 0, 0.0


class ClassLimits:
    """The limits of the classes whose pokes share the slots of a process. `Slots` calls it under its lock.

    A class that is not known begins with `FEWEST`, and has all it may within a fifth of a second if its pokes wait.

    :param most: of pokes of a class at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._fewest = min(FEWEST, most)
        self._classes: dict[str, _Class] = {}
        self._looked_at, self._cpu = time.monotonic(), time.process_time()

    def of(self, op_classpath: str) -> int:
        """Return the limit of a class."""
        known = self._classes.get(op_classpath)
        return self._fewest if known is None else known.limit

    def first_begins(self, op_classpath: str) -> None:
        """Note that a poke of a class begins, and that no other of them goes on: the time before does not count."""
        if (known := self._classes.get(op_classpath)) is None:
            known = self._classes[op_classpath] = _Class(self._fewest)
        known.begin(time.monotonic())

    def ended(self, op_classpath: str, cpu: float) -> None:
        """Note that a poke of a class has ended, which took so many seconds of the processor."""
        known = self._classes[op_classpath]
        known.ended += 1
        known.used += cpu

    def look(self, busy: Mapping[str, int]) -> None:
        """Look at the classes again, every `WINDOW`.

        :param busy: how many pokes of each class go on.
        """
        now = time.monotonic()
        since = now - self._looked_at
        if since < WINDOW:
            return
        cpu = time.process_time()
        is_idle = (cpu - self._cpu) / since < _WAITS
        self._looked_at, self._cpu = now, cpu
        for op_classpath, known in self._classes.items():
            going_on, before = busy.get(op_classpath, 0), known.limit
            if not going_on or now - known.began < WINDOW:
                continue
            if known.ended >= going_on:  # as many have ended as go on: their CPU tells of all of them
                share = known.used / (now - known.began)
            elif is_idle:  # whatever they do, it takes no CPU of this process
                share = 0.0
            else:
                continue
            if _COMPUTES <= share < _BESIDE:
                known.limit = max(self._fewest, min(before, going_on) // 2)
            elif not _WAITS <= share < _BESIDE:
                known.limit = min(self._most, 2 * before)
            known.begin(now)


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
