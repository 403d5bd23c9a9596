"""Constructed sensors by group id. Contexts never change and ids are never used again: nothing goes stale."""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from sensorpool.model import DueGroup
from sensorpool.poke.classes import Classes, SensorClass, Way


class Kept:
    """A sensor that is constructed at its first poke, under that poke's time limit."""

    __slots__ = ("_context", "hashcode", "home", "op_classpath", "poke", "way")

    def __init__(self, hashcode: int, op_classpath: str, poke_context: str) -> None:
        self.hashcode = hashcode
        self.op_classpath = op_classpath
        self.home = 0  # the event loop that it was constructed on, for clients belong to their loop
        self.way: Way | None = None
        self.poke: Any = None  # a bound poke; for a class that answers many at once, the context
        self._context: str | None = poke_context

    def prepare(self, classes: Classes, home: int = 0) -> SensorClass:
        """Construct the sensor, if that has not been done (on this event loop).

        :raises ClassRefused: when the class is not allowed or is no sensor; anything that its constructor raises.
        """
        found = classes.find(self.op_classpath)
        if self.way is None or home != self.home:
            assert self._context is not None
            sensor = found.construct(json.loads(self._context))
            self.poke = sensor if found.way is Way.MANY else sensor.poke
            self.way, self.home = found.way, home
            if found.way is not Way.ASYNC:
                self._context = None
        return found


class Cache:
    """A bounded cache by group id, the least recently poked going first. Safe to share between threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def look_up(self, groups: Iterable[DueGroup]) -> tuple[dict[int, Kept], list[DueGroup]]:
        """Return the kept sensors by group id, and the groups that this process has not seen yet."""
        hits: dict[int, Kept] = {}
        missing: list[DueGroup] = []
        kept = self._kept
        with self._lock:
            for group in groups:
                found = kept.get(group.id)
                # ids are never used again; that they agree is looked at all the same
                if found is not None and found.hashcode == group.hashcode:
                    kept.move_to_end(group.id)
                    hits[group.id] = found
                else:
                    missing.append(group)
        return hits, missing

    def keep(self, group: DueGroup, op_classpath: str, poke_context: str) -> Kept:
        """Keep a group's sensor; the oldest goes if there are too many."""
        kept = Kept(group.hashcode, op_classpath, poke_context)
        with self._lock:
            self._kept[group.id] = kept
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return kept

    def drop(self, group_ids: Iterable[int]) -> None:
        """Forget groups: settled, or bound to an event loop that is gone."""
        with self._lock:
            for group_id in group_ids:
                self._kept.pop(group_id, None)
