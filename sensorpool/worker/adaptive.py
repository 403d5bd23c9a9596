"""Adaptive intervals (the setting ``adaptive``): which due groups are passed over, as they never landed so early."""

import threading
import time
from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.sparse import is_left_out
from sensorpool.model.values import DueGroup, Milliseconds
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import late_conditions
from sensorpool.store.database import Database
from sensorpool.worker.usual_landings import KEPT, UsualLandings

_AT_ONCE = 1_000  # groups that one load looks up
_FAMILIES = 100  # whose landings one load reads
_NEVER_SPARSE = 0

log = logger(__name__)


class _Learnt(NamedTuple):
    """What is known of a group, and since when, by the monotonic clock."""

    hashcode: int
    earliest: Milliseconds
    at: float


class Look(NamedTuple):
    """The load of a range.

    :param last: the one before.
    :param new_since: groups that were registered later had no poke before this load.
    :param wanted: ids of groups that are poked in any case: they were left over, or woken.
    """

    last: Milliseconds
    now: Milliseconds
    new_since: Milliseconds
    wanted: Container[int]


class Adaptive:
    """When the conditions of groups are expected at the earliest, as this process knows it. Safe to share.

    What it does not know yet is poked as declared.

    :param most: groups that are remembered.
    """

    def __init__(self, database: Database, *, most: int) -> None:
        self._database = database
        self._usual_landings = UsualLandings(database)
        self._most = max(most, _AT_ONCE)
        self._learnt: dict[int, _Learnt] = {}  # by the id of a group
        self._lock = threading.Lock()

    def sift(self, units: Sequence[PokeUnit], look: Look) -> list[PokeUnit]:
        """Return the groups that are poked now."""
        with self._lock:
            try:
                self._learn([unit.group for unit in units], look.now)
            except Unreachable as error:
                log.info("when conditions usually land is not known; they are poked as declared", error=str(error))
            return [unit for unit in units if not self._is_left_out(unit.group, look)]

    def _is_left_out(self, group: DueGroup, look: Look) -> bool:
        learnt = self._learnt.get(group.id)
        if learnt is None or learnt.hashcode != group.hashcode or learnt.earliest <= look.now:
            return False
        if group.id in look.wanted or group.registered_at > look.new_since:  # its first poke is never left out
            return False
        if group.next_deadline is not None and look.now >= group.next_deadline:
            return False
        return is_left_out(look.last, look.now, group.poke_interval, group.phase, learnt.earliest)

    def _learn(self, groups: Sequence[DueGroup], now: Milliseconds) -> None:
        """Look up when the conditions of groups are expected at the earliest, again after `KEPT`.

        :raises Unreachable: when the database does not answer.
        """
        here = time.monotonic()
        unknown: dict[int, DueGroup] = {}
        for group in groups:
            learnt = self._learnt.get(group.id)
            if learnt is None or learnt.hashcode != group.hashcode or here - learnt.at > KEPT:
                unknown[group.id] = group
                if len(unknown) == _AT_ONCE:
                    break
        if not unknown:
            return
        rows = self._database.read(late_conditions.of_groups, unknown)
        self._read_families({row.family for row in rows}, now)
        for row in rows:
            if not self._usual_landings.is_unread(row.family):
                found = self._usual_landings.earliest(row.family, row.logical_date, row.registered_at)
                self._learnt.pop(row.id, None)
                earliest = _NEVER_SPARSE if found is None else found
                self._learnt[row.id] = _Learnt(unknown[row.id].hashcode, earliest, here)
        while len(self._learnt) > self._most:
            del self._learnt[next(iter(self._learnt))]

    def _read_families(self, families: Collection[int], now: Milliseconds) -> None:
        unread = [family for family in families if self._usual_landings.is_unread(family)]
        if unread:
            self._usual_landings.read(unread[:_FAMILIES], now)
