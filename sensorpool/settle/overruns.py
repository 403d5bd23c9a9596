"""Pokes that overrun their limit, counted in a row: one that needs longer never lands in the pool. Pure.

A waiter elsewhere that can poke by itself, as Airflow's tasks can, is handed back when the count reaches its limit, and
at its deadline: there its poke has the time that it needs. The count is kept in Redis, beside the lease of a range: if
it is lost, it begins anew.
"""

from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Report


def is_overrun(report: Report, poke_timeout: float) -> bool:
    """Whether a poke took longer than it may, in seconds; not, if its process was ended before."""
    return report.outcome is Outcome.POKE_TIMEOUT and report.seconds >= poke_timeout / 2


def counted(fact: Fact, in_a_row: int, limit: int) -> Fact:
    """Say of a poke that overran how many did so in a row, and how many more may.

    :param in_a_row: with this one; 0: not known.
    :param limit: 0: any number may.
    """
    left = limit - in_a_row if limit else None
    if in_a_row < 2:
        return fact._replace(overruns_left=left)
    reason = f"{fact.reason}, {in_a_row} times in a row; SENSORPOOL_POKE_TIMEOUT gives it more"
    return fact._replace(reason=reason, overruns_left=left)


def is_last(fact: Fact) -> bool:
    """Whether those who can poke by themselves are handed back after this poke."""
    return fact.overruns_left is not None and fact.overruns_left <= 0
