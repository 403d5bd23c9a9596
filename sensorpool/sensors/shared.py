"""What all sensors of a process share: costly objects, and the time limit of a poke."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Generic, TypeVar

from sensorpool.instrumentation import forks

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing")


class Shared(Generic[Key, Thing]):
    """At most ``limit`` things in this process, one for each key; the least recently used one is dropped first.

    Safe to share between threads. A forked child starts empty and makes its own things.

    :param discard: is called with a dropped thing, which another thread may be using at that moment.
    """

    def __init__(self, limit: int, discard: Callable[[Thing], object] | None = None) -> None:
        self._limit = limit
        self._discard = discard or _do_nothing
        self._inherited: list[object] = []
        self._things: OrderedDict[Key, Thing] = OrderedDict()
        self._making: dict[Key, threading.Lock] = {}
        self._numbers: dict[Hashable, set[int]] = {}
        self._lock = threading.Lock()
        forks.note(self)

    def __len__(self) -> int:
        return len(self._things)

    def find(self, key: Key) -> Thing | None:
        """Return the thing of a key, or None."""
        with self._lock:
            if (thing := self._things.get(key)) is not None:
                self._things.move_to_end(key)
            return thing

    def get(self, key: Key, make: Callable[[], Thing]) -> Thing:
        """Return the thing of a key, made now if there is none; an exception of ``make`` is raised."""
        if (thing := self.find(key)) is not None:
            return thing
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:  # `make` may take long: threads wait only for the same key, so each thing is made once
            if (thing := self.find(key)) is not None:
                return thing
            made = make()
            with self._lock:
                self._things[key] = made
                self._making.pop(key, None)
                outgrown = [self._things.popitem(last=False)[1] for _ in range(len(self._things) - self._limit)]
        for dropped in outgrown:
            self._discard(dropped)
        return made

    @contextmanager
    def numbered(self, user_of: Hashable) -> Iterator[int]:
        """Yield the lowest number that no other user of the same has now: few things serve threads that take turns."""
        with self._lock:
            taken = self._numbers.setdefault(user_of, set())
            number = next(number for number in count() if number not in taken)
            taken.add(number)
        try:
            yield number
        finally:
            with self._lock:
                taken.discard(number)
                if not taken and self._numbers.get(user_of) is taken:
                    del self._numbers[user_of]

    def drop(self, key: Key, thing: Thing) -> None:
        """Drop the thing of a key, unless another thing has taken its place."""
        with self._lock:
            if self._things.get(key) is not thing:
                return
            del self._things[key]
        self._discard(thing)

    def begin_anew(self) -> None:
        """Start empty in a forked child."""
        # kept, never discarded or collected: a close here would end the parent's connections
        self._inherited.append(self._things)
        self._things = OrderedDict()
        self._making = {}
        self._numbers = {}
        self._lock = threading.Lock()  # a thread of the parent may have held the old one


def _do_nothing(_thing: object) -> None:
    pass


_seconds: float | None = None


def set_time_limit(seconds: float) -> None:
    """Set the time limit of each poke of this process. A sensor has its server end the work of a poke after that."""
    global _seconds  # one value for the process, set at its start
    _seconds = seconds


def time_limit() -> float | None:
    """Return the time limit of a poke in seconds; None in a process that does not poke for a pool."""
    return _seconds
