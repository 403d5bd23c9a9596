"""What is usual for families, kept for an hour: it costs a query, and changes by a little with each landing."""

import time
from collections import OrderedDict
from collections.abc import Collection

from sensorpool.model.usual_landing import FEWEST, MOST, Past, Usual, begins, earliest, usual
from sensorpool.model.values import Milliseconds
from sensorpool.store import landings
from sensorpool.store.database import Database

KEPT = 3_600.0  # seconds
LOOK_BACK = 400 * 86_400_000  # milliseconds
_FAMILIES = 20_000  # kept


class UsualLandings:
    """The earlier landings of families. Belongs to one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[int, tuple[float, list[Past]]] = OrderedDict()  # when they were read, and the landings

    def is_unread(self, family: int) -> bool:
        """Whether a family has to be read before `of` knows it."""
        kept = self._kept.get(family)
        return kept is None or time.monotonic() - kept[0] > KEPT

    def read(self, families: Collection[int], now: Milliseconds) -> None:
        """Read the landings of families.

        :raises Unreachable: when the database does not answer.
        """
        found = earlier(self._database, families, now)
        for family in families:
            self._kept[family] = (time.monotonic(), found.get(family, []))
            self._kept.move_to_end(family)
        while len(self._kept) > _FAMILIES:
            self._kept.popitem(last=False)

    def of(self, family: int, began: Milliseconds) -> Usual | None:
        """Return the usual landing of a condition whose time began to count then, if it is known."""
        _, past = self._kept.get(family, (0.0, []))
        return usual(past, began)

    def earliest(
        self, family: int, logical_date: Milliseconds | None, waiting_since: Milliseconds
    ) -> Milliseconds | None:
        """Return the time before which no such condition has ever landed, if it is known."""
        _, past = self._kept.get(family, (0.0, []))
        return earliest(past, logical_date, waiting_since)


def earlier(database: Database, families: Collection[int], now: Milliseconds) -> dict[int, list[Past]]:
    """Return the newest landings of the families that have enough of them.

    :raises Unreachable: when the database does not answer.
    """
    after = now - LOOK_BACK
    known = database.read(landings.known_families, families, after, FEWEST)
    found = database.read(landings.of_families, known, after, MOST)
    return {family: [_past(each) for each in rows] for family, rows in found.items()}


def _past(landing: landings.Landing) -> Past:
    began = begins(landing.logical_date, landing.waiting_since)
    unwaited = max(0, landing.waiting_since - began)
    return Past(began, landing.ended_at - began, unwaited, landing.logical_date is not None)
