"""Adaptive intervals on a simulated month of daily partitions: the pokes that they spare, the latency that they cost.

A hundred series, each with a usual hour (a tenth lands a few minutes after midnight, the others over the day) and a
spread of its own: landings are log-normal about it, one in a hundred is hours late, one in fifty oddly early. The 120
days before are the record, as many landings as are looked at; thirty days are played, period by period, by the rules
that the worker goes by.
"""

import random
from collections.abc import Iterator
from statistics import mean, quantiles

from benchmarks.report import Row
from sensorpool.model.due import period
from sensorpool.model.usual_landing import is_left_out

SERIES, RECORD, DAYS = 100, 120, 30
DAY, MINUTE = 86_400_000, 60_000
START = 20_000 * DAY
_ODDLY_EARLY, _HOURS_LATE = 0.02, 0.01


def run(full: bool) -> Iterator[Row]:  # noqa: ARG001  # there is one size
    """Play the month at several intervals."""
    for minutes in (1, 5, 15):
        yield _month(minutes * MINUTE, random.Random(16))


def _month(interval: int, rng: random.Random) -> Row:
    pokes = {"fixed": 0, "adaptive": 0}
    latency: dict[str, list[float]] = {"fixed": [], "adaptive": []}
    for _ in range(SERIES):
        middle = rng.uniform(2, 20) * MINUTE if rng.random() < 0.1 else rng.uniform(0.5, 20) * 60 * MINUTE
        sigma = rng.uniform(0.02, 0.4)
        took = [_took(rng, middle, sigma) for _ in range(RECORD + DAYS)]
        phase = rng.randrange(2**31)
        for day in range(RECORD, RECORD + DAYS):
            began = START + day * DAY
            first = began + min(took[day - RECORD : day])
            for way, until in (("fixed", 0), ("adaptive", first)):
                number, late = _wait(began, began + took[day], interval, phase, until)
                pokes[way] += number
                latency[way].append(late / 1000)
    row: Row = {"case": f"every {interval // MINUTE} min", "conditions": SERIES * DAYS}
    row["pokes"] = dict(pokes)
    row["pokes spared, %"] = round(100 * (1 - pokes["adaptive"] / pokes["fixed"]), 1)
    for name, of in (("mean", mean), ("p99", lambda some: quantiles(some, n=100)[98]), ("most", max)):
        row[f"latency, s: {name}"] = {way: round(of(some), 1) for way, some in latency.items()}
    return row


def _took(rng: random.Random, middle: float, sigma: float) -> int:
    took = middle * rng.lognormvariate(0, sigma)
    if rng.random() < _HOURS_LATE:
        took += rng.uniform(1, 6) * 60 * MINUTE
    elif rng.random() < _ODDLY_EARLY:
        took *= rng.uniform(0.3, 0.9)
    return round(min(took, DAY - MINUTE))


def _wait(began: int, landed_at: int, interval: int, phase: int, first: int) -> tuple[int, int]:
    """Return how often a condition is poked until it is found, and how long after it landed that is."""
    last, now, pokes = began - interval, began, 0
    while True:
        if period(now, interval, phase) > period(last, interval, phase) and (
            now == began or not is_left_out(last, now, interval, phase, first)
        ):
            pokes += 1
            if now >= landed_at:
                return pokes, now - landed_at
        last, now = now, (period(now, interval, phase) + 1) * interval - phase
