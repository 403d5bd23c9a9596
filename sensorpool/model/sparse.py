"""Sparse pokes: while a condition has never landed so early, it is poked every tenth interval only. Pure.

What is known of its family (`usual_landing.earliest`) says when it landed at its earliest. From ten intervals before
that on it is poked at its declared interval. Nothing is ever poked more seldom than every tenth interval.
"""

from sensorpool.model.due import period
from sensorpool.model.values import Milliseconds

FACTOR = 10  # intervals between two pokes, at most


def is_left_out(
    last: Milliseconds, now: Milliseconds, poke_interval: Milliseconds, phase: int, earliest: Milliseconds
) -> bool:
    """Whether a group that is due by its interval is passed over at ``now``.

    :param last: the last load of its range: no period that is poked is lost between two loads.
    :param earliest: the earliest time at which its condition may be expected.
    """
    if now + FACTOR * poke_interval >= earliest:
        return False
    return period(now, poke_interval, phase) // FACTOR == period(last, poke_interval, phase) // FACTOR
