"""Adaptive intervals (the setting ``adaptive``): which due groups are passed over, as they never landed so early."""

from collections.abc import Container, Iterable, Sequence
from itertools import islice

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.sparse import is_left_out
from sensorpool.model.usual_landing import begins
from sensorpool.model.values import DueGroup, Milliseconds
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import late_conditions
from sensorpool.store.database import Database
from sensorpool.worker.usual_landings import UsualLandings

_AT_ONCE = 1_000  # groups that one load looks up
_FAMILIES = 100  # whose landings one load reads
_MOST = 200_000  # groups that are remembered
_NEVER_SPARSE = 0

log = logger(__name__)


class Adaptive:
    """When the conditions of groups are expected at the earliest, as this process knows it. Belongs to one thread.

    What it does not know yet is poked as declared.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._usual_landings = UsualLandings(database)
        self._earliest: dict[int, Milliseconds] = {}  # by group

    def sift(
        self, units: Sequence[PokeUnit], last: Milliseconds, now: Milliseconds, wanted: Container[int]
    ) -> list[PokeUnit]:
        """Return the groups that are poked now.

        :param last: the last load of their range.
        :param wanted: ids of groups that are poked in any case: they were left over, or woken.
        """
        try:
            self._learn([unit.group.id for unit in units if unit.group.id not in self._earliest], now)
        except Unreachable as error:
            log.info("when conditions usually land is not known; they are poked as declared", error=str(error))
        return [unit for unit in units if unit.group.id in wanted or not self._is_left_out(unit.group, last, now)]

    def _is_left_out(self, group: DueGroup, last: Milliseconds, now: Milliseconds) -> bool:
        earliest = self._earliest.get(group.id, _NEVER_SPARSE)
        if earliest <= now or now - group.registered_at < group.poke_interval:  # its first poke is never left out
            return False
        if group.next_deadline is not None and now >= group.next_deadline:
            return False
        return is_left_out(last, now, group.poke_interval, group.phase, earliest)

    def _learn(self, group_ids: Iterable[int], now: Milliseconds) -> None:
        """Look up when the conditions of groups are expected at the earliest.

        :raises Unreachable: when the database does not answer.
        """
        ids = list(islice(group_ids, _AT_ONCE))
        if not ids:
            return
        rows = self._database.read(late_conditions.of_groups, ids)
        usual = self._usual_landings
        unread = list(dict.fromkeys(row.family for row in rows if usual.is_unread(row.family)))[:_FAMILIES]
        if unread:
            usual.read(unread, now)
        for row in rows:
            if not usual.is_unread(row.family):
                began = begins(row.logical_date, row.registered_at)
                earliest = usual.earliest(row.family, began)
                self._earliest[row.id] = _NEVER_SPARSE if earliest is None else earliest
        while len(self._earliest) > _MOST:
            self._earliest.pop(next(iter(self._earliest)))
