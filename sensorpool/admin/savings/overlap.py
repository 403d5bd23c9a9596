"""The overlap of waits for one condition: at each moment one poke at the fastest pace serves all."""

import heapq
from collections import defaultdict
from collections.abc import Iterable

from sensorpool.admin.savings.values import Span

Owner = tuple[str, str]


def distinct_pokes(spans: Iterable[Span]) -> float:
    """Return how many pokes spans of one condition need together: those of the fastest of them, moment by moment.

    :param spans: in the order of their starts. Only those that overlap are kept in memory.
    """
    needed, now = 0.0, 0.0
    waiting: list[tuple[float, float]] = []  # the pace with a minus, and the end: the fastest first
    for span in spans:
        needed, now = needed + _needed_until(span.start, now, waiting), span.start
        heapq.heappush(waiting, (-span.pokes / span.seconds, span.start + span.seconds))
    return needed + _needed_until(float("inf"), now, waiting)


def _needed_until(moment: float, now: float, waiting: list[tuple[float, float]]) -> float:
    """Return the pokes between two moments. What ends before the later one leaves the heap once it is the fastest."""
    needed = 0.0
    while waiting and now < moment:
        slowness, end = waiting[0]
        until = min(end, moment)
        if until > now:
            needed -= slowness * (until - now)
            now = until
        if end <= now:
            heapq.heappop(waiting)
    return needed


def duplicates_of(spans: Iterable[Span]) -> dict[Owner, float]:
    """Return how many pokes of each owner are duplicates, for spans of one condition in the order of their starts.

    The duplicates of a condition are shared out in proportion to the pokes of its owners.
    """
    pokes: defaultdict[Owner, float] = defaultdict(float)

    def counted() -> Iterable[Span]:
        for span in spans:
            pokes[span.owner] += span.pokes
            yield span

    needed = distinct_pokes(counted())
    total = sum(pokes.values())
    share = max(1.0 - needed / total, 0.0) if total else 0.0
    return {owner: count * share for owner, count in pokes.items()}
