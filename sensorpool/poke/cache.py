"""Groups and their sensors by id. Contexts never change and ids are never used again, so nothing goes stale."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from sensorpool.model import DueGroup
from sensorpool.poke.works import Means, One


class Cache:
    """A bounded cache by group id, the oldest going first. Safe to share between threads.

    Not the least recently poked: pokes come in rounds, for which that is the worst order, and keeping it costs most.
    """

    def __init__(self, size: int, means: Means) -> None:
        self._size = size
        self._means = means
        self._kept: OrderedDict[int, One] = OrderedDict()
        self._lock = threading.Lock()
        self.newest = 0  # when the last one of the groups ever kept was registered
        self.crashed = False  # whether one of them ever took its process down

    def __len__(self) -> int:
        return len(self._kept)

    def look_up(self, rows: Iterable[tuple[int, int, int]]) -> tuple[list[One], list[int]]:
        """Return those groups (id, version, hashcode) that are kept as they are, and the ids of the others."""
        hits: list[One] = []
        missing: list[int] = []
        get = self._kept.get
        with self._lock:
            for group_id, version, hashcode in rows:
                one = get(group_id)
                # ids are never used again; that they agree is looked at all the same
                if one is not None and one.group.version == version and one.group.hashcode == hashcode:
                    hits.append(one)
                else:
                    missing.append(group_id)
        return hits, missing

    def keep(self, group: DueGroup, op_classpath: str, poke_context: str) -> One:
        """Keep a group as it is now, with the sensor that it has already; the oldest goes if there are too many."""
        with self._lock:
            self.newest = max(self.newest, group.registered_at)
            self.crashed = self.crashed or group.crashes > 0
            one = self._kept.get(group.id)
            if one is not None and one.group.hashcode == group.hashcode:
                one.group = group
            else:
                one = self._kept[group.id] = One(group, op_classpath, poke_context, self._means)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return one

    def drop(self, group_ids: Iterable[int]) -> None:
        """Forget groups that have settled."""
        with self._lock:
            for group_id in group_ids:
                self._kept.pop(group_id, None)
