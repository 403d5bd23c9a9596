"""When a condition usually lands, by the earlier landings of its family. Pure.

A landing is measured from the logical date of its run. Without one, it is measured from when its first waiter came. A
condition is late after the time that nine of ten landings took, and a margin: twice the distance of that time from the
median, and at least five minutes.

With adaptive intervals, a condition is poked at every tenth interval only, until ten intervals before the earliest time
at which its family has ever landed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sensorpool.model.due import period
from sensorpool.model.values import Milliseconds

DAY = 86_400_000  # milliseconds
ALL_DAYS = -1  # in the place of a weekday
FEWEST = 10  # landings, without which nothing is usual; also of a weekday
FACTOR = 10  # intervals between two pokes of a condition that never landed so early
_CAUGHT_UP = DAY // 4
_BEYOND = 2  # times the distance from the median to the time that nine of ten landings took
_LEAST = 5 * 60_000  # milliseconds


class PastLanding(NamedTuple):
    """A condition that landed.

    :param waiting_since: when its first waiter came.
    """

    logical_date: Milliseconds | None
    waiting_since: Milliseconds
    ended_at: Milliseconds

    @property
    def took(self) -> Milliseconds:
        """How long it took from when its time began to count."""
        return self.ended_at - _began(self.logical_date, self.waiting_since)

    @property
    def unwaited(self) -> Milliseconds:
        """How long nobody waited for it since then."""
        return max(0, self.waiting_since - _began(self.logical_date, self.waiting_since))


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


def usual_of(landings: Iterable[PastLanding]) -> Series:
    """Return what is usual by the landings of a family."""
    series: dict[tuple[bool, int], Usual] = {}
    by_kind: dict[bool, list[PastLanding]] = {}
    for each in landings:
        by_kind.setdefault(each.logical_date is not None, []).append(each)
    for is_dated, of_kind in by_kind.items():
        by_day: dict[int, list[PastLanding]] = {ALL_DAYS: _timely(of_kind)}
        for each in by_day[ALL_DAYS]:
            by_day.setdefault(_weekday(_began(each.logical_date, each.waiting_since)), []).append(each)
        series |= {(is_dated, day): _usual(some) for day, some in by_day.items() if len(some) >= FEWEST}
    return series


def _timely(landings: Sequence[PastLanding]) -> list[PastLanding]:
    """Return the landings without those of runs that were caught up.

    Such a run begins to wait long after its logical date, so its landing does not say when data usually lands. What is
    usual for the others is the lowest number but for a tenth: these may be runs by hand, which wait at once.
    """
    usually = sorted(each.unwaited for each in landings)[len(landings) // 10]
    return [each for each in landings if each.unwaited <= 2 * usually + _CAUGHT_UP]


def _usual(landings: Sequence[PastLanding]) -> Usual:
    took, number = sorted(each.took for each in landings), len(landings)
    shortest_wait = min(max(0, each.took - each.unwaited) for each in landings)
    return Usual(number, took[(number + 1) // 2 - 1], took[(9 * number + 9) // 10 - 1], took[0], shortest_wait)


class Expected(NamedTuple):
    """When a condition usually lands, after when it is late, and from how many landings that is known."""

    usually: Milliseconds
    late_after: Milliseconds
    landings: int


def family_code(op_classpath: str, family: str) -> int:
    """Return the number of a family: 64 bits, signed, as a hashcode."""
    digest = hashlib.sha256(f"{op_classpath}\n{family}".encode(errors="backslashreplace")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


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
    usual = series.get((is_dated, _weekday(began))) or series.get((is_dated, ALL_DAYS))
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


def is_left_out(
    last: Milliseconds, now: Milliseconds, poke_interval: Milliseconds, phase: int, earliest: Milliseconds
) -> bool:
    """Whether a group that is due by its interval is passed over, because its condition never landed so early.

    :param last: the last load of its range.
    :param earliest: the earliest time at which its condition may be expected.
    """
    if now + FACTOR * poke_interval >= earliest:
        return False
    return period(now, poke_interval, phase) // FACTOR == period(last, poke_interval, phase) // FACTOR


def _weekday(at: Milliseconds) -> int:
    return at // DAY % 7


def _began(logical_date: Milliseconds | None, waiting_since: Milliseconds) -> Milliseconds:
    return waiting_since if logical_date is None else logical_date
