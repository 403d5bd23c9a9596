"""When a condition usually lands, by the earlier landings of its family. Pure.

A landing is measured from the logical date of its run; without one, from the time when its first waiter came. The usual
landing is the median. A condition is late after the time that nine of ten landings took, and a margin: twice the
distance of that time from the median, and at least five minutes. If ten landings are of the same weekday, only these
count. A run that is caught up tells nothing: its data was there before anything waited for it. The tests play a year of
daily and of hourly partitions with these numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sensorpool.model.values import Milliseconds

FEWEST = 10  # landings, without which nothing is usual
MOST = 120  # landings that are looked at, the newest ones
_SHARE = 0.9  # of landings that are not late
_BEYOND = 2.0  # times the distance from the usual landing to the latest of that share
_LEAST = 5 * 60_000  # milliseconds beyond it
_DAY = 86_400_000
_CAUGHT_UP = _DAY // 4  # milliseconds by which the first waiter may be later than that of other runs, at least


class Past(NamedTuple):
    """An earlier landing: when its time began to count, how long it took, and how long nothing waited for it.

    :param is_dated: whether its time counts from a logical date.
    """

    began: Milliseconds
    took: Milliseconds
    unwaited: Milliseconds = 0
    is_dated: bool = True


class Expected(NamedTuple):
    """When a condition usually lands, and after when it is late."""

    usually: Milliseconds
    late_after: Milliseconds


class Usual(NamedTuple):
    """The usual landing of a family, in time from the logical date.

    :param after: half of the landings took less.
    :param late_after: a condition that takes longer is late.
    :param landings: how many it is known from.
    """

    after: Milliseconds
    late_after: Milliseconds
    landings: int

    def expects(self, began: Milliseconds, waiting_since: Milliseconds) -> Expected:
        """Return what is expected of a condition. One that is waited for late has the margin from then on."""
        margin = self.late_after - self.after
        return Expected(began + self.after, max(began + self.late_after, waiting_since + margin))


def begins(logical_date: Milliseconds | None, waiting_since: Milliseconds) -> Milliseconds:
    """Return the time from which a landing is measured."""
    return waiting_since if logical_date is None else logical_date


def family_of(group: Mapping[str, Any]) -> int:
    """Return the family of a group's row: a condition without one is a family of its own."""
    return int(group["hashcode"] if group["family"] is None else group["family"])


def usual(past: Iterable[Past], began: Milliseconds) -> Usual | None:
    """Return the usual landing of a condition whose time began to count then; None if it is not known."""
    known = _not_caught_up(list(past))
    of_weekday = [each for each in known if _weekday(each.began) == _weekday(began)]
    sample = of_weekday if len(of_weekday) >= FEWEST else known
    return _usual(sorted(each.took for each in sample)) if len(sample) >= FEWEST else None


def earliest(
    past: Iterable[Past], logical_date: Milliseconds | None, waiting_since: Milliseconds
) -> Milliseconds | None:
    """Return the time before which no such condition has ever landed, as far as is known; None if it is not known.

    By the time from the logical date and by the time that was waited for it, whichever is sooner: the runs of a family
    may be of different schedules. Without a logical date, only landings without one count, and the other way round.
    """
    is_dated = logical_date is not None
    known = [each for each in _not_caught_up(list(past)) if each.is_dated is is_dated]
    if len(known) < FEWEST:
        return None
    first = begins(logical_date, waiting_since) + min(each.took for each in known)
    return min(first, waiting_since + min(max(0, each.took - each.unwaited) for each in known))


def _not_caught_up(past: Sequence[Past]) -> list[Past]:
    """Leave out landings that were waited for much later than others of the family: of a backfill, or a catchup."""
    if not past:
        return []
    first = sorted(each.unwaited for each in past)[len(past) // 10]
    return [each for each in past if each.unwaited <= first + max(first, _CAUGHT_UP)]


def _usual(took: Sequence[Milliseconds]) -> Usual:
    middle = took[(len(took) - 1) // 2]
    latest = took[math.ceil(_SHARE * len(took)) - 1]
    return Usual(middle, latest + max(round(_BEYOND * (latest - middle)), _LEAST), len(took))


def _weekday(at: Milliseconds) -> int:
    return at // _DAY % 7
