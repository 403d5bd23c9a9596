"""How many pokes of a class go on at once: as many as may while they wait for answers, and a few while they compute.

Threads that want the interpreter wait for one another: with many of them, each poke takes twice the CPU, and the last
one ends later. So the CPU of a class is compared with the time that went by.
"""

import time
from collections.abc import Mapping

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

    def look(self, busy: Mapping[str, int]) -> list[str]:
        """Look at the classes again, every `WINDOW`; return those whose limit is another one now.

        :param busy: how many pokes of each class go on.
        """
        now = time.monotonic()
        since = now - self._looked_at
        if since < WINDOW:
            return []
        cpu = time.process_time()
        is_idle = (cpu - self._cpu) / since < _WAITS
        self._looked_at, self._cpu = now, cpu
        changed = []
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
            if known.limit != before:
                changed.append(op_classpath)
        return changed
