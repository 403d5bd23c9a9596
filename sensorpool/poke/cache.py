"""Groups and their sensors by id. Contexts never change and ids are never used again, so nothing goes stale."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from sensorpool.model.values import DueGroup
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit


class Cache:
    """A bounded cache by group id, the oldest going first. Safe to share between threads.

    Not the least recently poked: pokes come in rounds, for which that is the worst order, and keeping it costs most.
    """

    def __init__(self, size: int, tools: PokeTools) -> None:
        self._size = size
        self._tools = tools
        self._kept: OrderedDict[int, PokeUnit] = OrderedDict()
        self._lock = threading.Lock()
        self.newest = 0  # when the last one of the groups ever kept was registered
        self.crashed = False  # whether one of them ever took its process down

    def __len__(self) -> int:
        return len(self._kept)

    def look_up(self, rows: Iterable[tuple[int, int, int]]) -> tuple[list[PokeUnit], list[int]]:
        """Return those groups (id, version, hashcode) that are kept as they are, and the ids of the others."""
        hits: list[PokeUnit] = []
        missing: list[int] = []
        get = self._kept.get
        with self._lock:
            for group_id, version, hashcode in rows:
                unit = get(group_id)
                # ids are never used again; that they agree is looked at all the same
                if unit is not None and unit.group.version == version and unit.group.hashcode == hashcode:
                    hits.append(unit)
                else:
                    missing.append(group_id)
        return hits, missing

    def keep(self, group: DueGroup, op_classpath: str, poke_context: str) -> PokeUnit:
        """Keep a group as it is now, with the sensor that it has already; the oldest goes if there are too many."""
        with self._lock:
            self.newest = max(self.newest, group.registered_at)
            self.crashed = self.crashed or group.crashes > 0
            unit = self._kept.get(group.id)
            if unit is not None and unit.group.hashcode == group.hashcode:
                unit.join(group)
            else:
                unit = self._kept[group.id] = PokeUnit(group, op_classpath, poke_context, self._tools)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return unit

    def not_here(self, group_ids: Iterable[int]) -> set[int]:
        """Return those of the groups of which this process knows that it cannot poke them now."""
        get = self._kept.get
        with self._lock:
            return {group_id for group_id in group_ids if (unit := get(group_id)) is not None and unit.why_not()}

    def put_off(self, group_id: int, why: str) -> None:
        """Note that this process could not poke a group; what holds for its class is noted there."""
        with self._lock:
            unit = self._kept.get(group_id)
        if unit is not None and unit.why_not() is None:
            unit.put_off(why)
            self._tools.classes.note(unit.op_classpath, unit.why_not() or why)

    def drop(self, group_ids: Iterable[int]) -> None:
        """Forget groups that have settled."""
        with self._lock:
            for group_id in group_ids:
                self._kept.pop(group_id, None)
