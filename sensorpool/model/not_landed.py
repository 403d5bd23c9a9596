"""Many pokes that found nothing, as one value: most pokes do, and a value for each would cost more than the poke."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds, Report


class NotLanded(NamedTuple):
    """Pokes of one thread, one after the other or in one call, that found nothing.

    :param groups: as they were when their poke began.
    :param began: when each poke began, by the monotonic clock.
    :param seconds: how long each poke took, on average.
    """

    groups: list[DueGroup]
    ids: list[int]
    began: list[float]
    seconds: float
    members: int  # how many wait for these groups
    intervals: set[Milliseconds]
    deadline: Milliseconds | None  # the first one

    def reports(self) -> list[Report]:
        """Return a report for each group."""
        return [
            Report(group, began, Outcome.NOT_LANDED, None, None, self.seconds)
            for group, began in zip(self.groups, self.began, strict=True)
        ]


Seen = Report | NotLanded
"""What one poke saw, or many."""


def not_landed(groups: list[DueGroup], began: list[float], seconds: float) -> NotLanded:
    """Make the value. The thread that poked does so: there the groups are in the processor's cache still."""
    return NotLanded(
        groups,
        [group.id for group in groups],
        began,
        seconds,
        sum([group.members for group in groups]),
        {group.poke_interval for group in groups},
        min([group.next_deadline for group in groups if group.next_deadline is not None], default=None),
    )


def apart(seen: Iterable[Seen]) -> tuple[list[Report], list[NotLanded]]:
    """Return the reports of single pokes, and those that are many in one."""
    reports: list[Report] = []
    many: list[NotLanded] = []
    for each in seen:
        if isinstance(each, NotLanded):
            many.append(each)
        else:
            reports.append(each)
    return reports, many


def each_report(seen: Iterable[Seen]) -> list[Report]:
    """Return a report for each poke."""
    reports, many = apart(seen)
    return reports + [report for each in many for report in each.reports()]


def number_of(seen: Sequence[Seen]) -> int:
    """Return how many pokes there were."""
    return sum([len(each.ids) if isinstance(each, NotLanded) else 1 for each in seen])
