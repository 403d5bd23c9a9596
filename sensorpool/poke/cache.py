"""Groups and their sensors by id. A group's context never changes and ids are never reused, so nothing goes stale."""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable

from sensorpool.model.values import DueGroup
from sensorpool.poke.answer import CANNOT
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit

_OF_THE_POOL = re.compile("^(ClassUnavailable|CannotPoke|SettingsError): ")  # names that add nothing to the text


class Cache:
    """A bounded cache by group id; the oldest entry is dropped first. Safe to share between threads.

    The least recently poked entry is not dropped first: pokes come in rounds, for which that order is the worst, and
    it costs most to keep.
    """

    def __init__(self, size: int, tools: PokeTools) -> None:
        self._size = size
        self._tools = tools
        self._kept: OrderedDict[int, PokeUnit] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def look_up(self, rows: Iterable[tuple[int, int, int]]) -> tuple[list[PokeUnit], list[int]]:
        """Return the kept units of these groups (id, version, hashcode), and the ids of groups not kept as such."""
        hits: list[PokeUnit] = []
        missing: list[int] = []
        get = self._kept.get
        with self._lock:
            for group_id, version, hashcode in rows:
                unit = get(group_id)
                # ids are never reused; the hashcode is compared all the same
                if unit is not None and unit.group.version == version and unit.group.hashcode == hashcode:
                    hits.append(unit)
                else:
                    missing.append(group_id)
        return hits, missing

    def keep(self, group: DueGroup, op_classpath: str, poke_context: str, backend: str | None = None) -> PokeUnit:
        """Keep a group as it is now, with the sensor that it has already; drop the oldest entry of too many.

        :param backend: its name; None: its class stands for it.
        """
        with self._lock:
            unit = self._kept.get(group.id)
            if unit is not None and unit.group.hashcode == group.hashcode:
                unit.join(group)
            else:
                unit = self._kept[group.id] = PokeUnit(group, op_classpath, poke_context, self._tools, backend)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return unit

    def kinds(self, group_ids: Iterable[int]) -> list[tuple[str, str]]:
        """Return the class and the backend of each of these groups; both are empty of a group that is not kept."""
        get = self._kept.get
        with self._lock:
            return [("", "") if (u := get(group_id)) is None else (u.op_classpath, u.backend) for group_id in group_ids]

    def note_unpokeable(self, group_id: int, why: str) -> None:
        """Note at its class that this process could not poke a group."""
        with self._lock:
            unit = self._kept.get(group_id)
        classes = self._tools.classes
        if unit is not None and classes.refusal(unit.op_classpath) is None:
            classes.note(unit.op_classpath, _OF_THE_POOL.sub("", why.partition(CANNOT)[2]) or why)

    def drop(self, group_ids: Iterable[int]) -> None:
        """Drop groups that have settled."""
        with self._lock:
            for group_id in group_ids:
                self._kept.pop(group_id, None)
