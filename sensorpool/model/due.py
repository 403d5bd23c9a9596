"""When a group is due: the rule that the load's SQL must agree with (a property test holds them together). Pure.

Time is cut into periods of one interval, shifted by the group's phase. A group is due when a period began since the
last load of its range, when it was registered since then, or when a member's deadline has come since then. So it is
poked once a period, whatever messages are lost, late or repeated.
"""

import math

from sensorpool.model.values import Milliseconds

SPREAD = 2**31  # phases lie below it


def whole_ticks(seconds: float, tick_ms: Milliseconds) -> Milliseconds:
    """Round a span of seconds up to whole ticks, at least one."""
    return max(1, math.ceil(round(seconds * 1000) / tick_ms)) * tick_ms


def period(at: Milliseconds, poke_interval: Milliseconds, phase: int) -> int:
    """Return the number of the period that ``at`` lies in."""
    return (at + phase) // poke_interval


def next_period_at(at: Milliseconds, poke_interval: Milliseconds, phase: int) -> Milliseconds:
    """Return when the next period after ``at`` begins."""
    return (period(at, poke_interval, phase) + 1) * poke_interval - phase


def is_due(
    *,
    poke_interval: Milliseconds,
    phase: int,
    registered_at: Milliseconds,
    next_deadline: Milliseconds | None,
    last: Milliseconds,
    now: Milliseconds,
    commit_overlap: Milliseconds,
) -> bool:
    """Whether a group is due at ``now``, if its range was last loaded at ``last`` (0: not known, so all are due)."""
    return (
        period(now, poke_interval, phase) > period(last, poke_interval, phase)
        or registered_at > last - commit_overlap
        or (next_deadline is not None and last < next_deadline <= now)
    )


def step_at(
    waited: Milliseconds, base: Milliseconds, max_wait: Milliseconds | None
) -> tuple[Milliseconds, Milliseconds | None]:
    """Return the present step of an exponential backoff, and when it grows next (None: never), counted from the start.

    The steps are base, 2·base, 4·base, …, so they end at base, 3·base, 7·base, …. This is Airflow's rule without its
    jitter: the phase spreads the sensors already.
    """
    step = ends = base = max(1, base)
    while ends <= waited:
        if max_wait is not None and step >= max_wait:
            break
        step *= 2
        ends += step
    if max_wait is not None and step >= max_wait:
        return max(max_wait, base), None
    return step, ends
