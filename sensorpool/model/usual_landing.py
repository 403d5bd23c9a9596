"""When a condition usually lands, by the earlier landings of its family. Pure.

A landing is measured from the logical date of its run; without one, from the time when its first waiter came. A
condition is late after the time that nine of ten landings took, and a margin: twice the distance of that time from the
median, and at least five minutes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sensorpool.model.values import Milliseconds

DAY = 86_400_000  # milliseconds
ALL_DAYS = -1  # in the place of a weekday
_BEYOND = 2  # times the distance from the median to the time that nine of ten landings took
_LEAST = 5 * 60_000  # milliseconds


class Usual(NamedTuple):
    """What is usual for a family, in milliseconds from when a condition's time began to count.

    :param landings: how many it is known from.
    :param median: half of the landings took no longer.
    :param latest: nine of ten took no longer.
    :param earliest: none took less.
    :param shortest_wait: none was waited for any shorter.
    """

    landings: int
    median: Milliseconds
    latest: Milliseconds
    earliest: Milliseconds
    shortest_wait: Milliseconds


Series = Mapping[tuple[bool, int], Usual]
"""What is usual for a family, by whether the run has a logical date, and by the weekday or for `ALL_DAYS`."""


class Expected(NamedTuple):
    """When a condition usually lands, after when it is late, and from how many landings that is known."""

    usually: Milliseconds
    late_after: Milliseconds
    landings: int


def family_of(group: Mapping[str, Any]) -> int:
    """Return the family of a group's row: a condition without one is a family of its own."""
    return int(group["hashcode"] if group["family"] is None else group["family"])


def expected(series: Series, logical_date: Milliseconds | None, waiting_since: Milliseconds) -> Expected | None:
    """Return what is expected of a condition; None if it is not known.

    The landings of the same weekday count, if they are known. A condition that is first waited for when its time has
    long begun, as of a backfill, is late only after the margin from then on.
    """
    began = _began(logical_date, waiting_since)
    is_dated = logical_date is not None
    usual = series.get((is_dated, began // DAY % 7)) or series.get((is_dated, ALL_DAYS))
    if usual is None:
        return None
    beyond = usual.latest - usual.median
    margin = beyond + max(_BEYOND * beyond, _LEAST)
    usually = began + usual.median
    return Expected(usually, max(usually, waiting_since) + margin, usual.landings)


def earliest(series: Series, logical_date: Milliseconds | None, waiting_since: Milliseconds) -> Milliseconds | None:
    """Return the time before which no such condition has ever landed; None if it is not known.

    By the time from the logical date or by the time that was waited for it, whichever is sooner: the runs of a family
    may be of different schedules.
    """
    usual = series.get((logical_date is not None, ALL_DAYS))
    if usual is None:
        return None
    return min(_began(logical_date, waiting_since) + usual.earliest, waiting_since + usual.shortest_wait)


def _began(logical_date: Milliseconds | None, waiting_since: Milliseconds) -> Milliseconds:
    return waiting_since if logical_date is None else logical_date
