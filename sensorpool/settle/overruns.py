"""Overruns in a row: a group whose poke always needs more than its time limit never lands in the pool. Pure.

A waiter that can poke by itself, as Airflow's tasks can, is handed back when the count of overruns reaches its limit,
and at its deadline: its own poke has no such limit. Redis keeps the count, beside the lease of the range; if Redis
loses it, the count begins anew.
"""

from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Report


def is_overrun(report: Report, poke_timeout: float) -> bool:
    """Whether a poke took longer than its limit (seconds); not if its process was killed early."""
    return report.outcome is Outcome.POKE_TIMEOUT and report.seconds >= poke_timeout / 2


def counted(fact: Fact, in_a_row: int, limit: int) -> Fact:
    """Add the count of overruns to the fact of a poke that overran, and how many more are allowed.

    :param in_a_row: overruns in a row with this one; 0: not known.
    :param limit: allowed overruns; 0: any number.
    """
    left = limit - in_a_row if limit else None
    if in_a_row < 2:
        return fact._replace(overruns_left=left)
    reason = f"{fact.reason}, {in_a_row} times in a row; SENSORPOOL_POKE_TIMEOUT gives it more"
    return fact._replace(reason=reason, overruns_left=left)


def is_last(fact: Fact) -> bool:
    """Whether waiters that can poke by themselves are handed back after this poke."""
    return fact.overruns_left is not None and fact.overruns_left <= 0
