"""Groups whose child process lives on for a while after the poke: what they left behind may still end it."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable

from sensorpool.model.values import ShardRange

_LONGEST = 120.0  # seconds: the end of a child that was dropped is never reported


class Lingering:
    """The groups whose child lives on, and since when. Safe to share between threads."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[ShardRange, float]] = {}
        self._lock = threading.Lock()

    def begin(self, shard_range: ShardRange, group_ids: Iterable[int]) -> set[int]:
        """Take groups up; return the groups that need a child. The child of the others lives on."""
        with self._lock:
            fresh = {group_id for group_id in group_ids if not self._has(group_id)}
            self._since.update(dict.fromkeys(fresh, (shard_range, time.monotonic())))
        return fresh

    def end(self, group_ids: Iterable[int]) -> dict[ShardRange, list[int]]:
        """Forget groups whose child has ended; return the known ones of them, by range."""
        by_range: dict[ShardRange, list[int]] = defaultdict(list)
        with self._lock:
            for group_id in group_ids:
                if (found := self._since.pop(group_id, None)) is not None:
                    by_range[found[0]].append(group_id)
        return by_range

    def has(self, group_id: int) -> bool:
        """Whether the child lives on that a group was poked in."""
        with self._lock:
            return self._has(group_id)

    def __bool__(self) -> bool:
        """Whether there are any."""
        with self._lock:
            return any(map(self._has, self._since))

    def _has(self, group_id: int) -> bool:
        return group_id in self._since and time.monotonic() - self._since[group_id][1] < _LONGEST
