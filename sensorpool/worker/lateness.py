"""Lateness: groups whose pokes do not come in time although jobs look at every range. Then `health` names the mend.

A group may wait in two places. A job leaves over the groups for which it has no time, and counts the groups that have
waited for too long (`range_state`). An isolated group waits for its turn in a child
process: the notes of processes count these.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.range_state import RangeState
from sensorpool.model.values import Milliseconds


class Waiting(NamedTuple):
    """Groups that wait for a poke, and for how long the first of them has waited."""

    groups: int = 0
    seconds: float = 0.0
    overdue: int = 0  # how many of them have waited for too many of their intervals


def who_waits(states: Sequence[RangeState], isolated: Sequence[Sequence[Isolated]]) -> tuple[Waiting, Waiting]:
    """Return the groups that are left over, and the groups that wait for their poke in a child process.

    :param isolated: the notes of processes on such groups, of each range.
    """
    notes = [each for notes in isolated for each in notes]
    overdue = sum(state.overdue for state in states)
    longest = max((state.overdue_ms for state in states if state.overdue), default=0) / 1000
    apart = Waiting(
        sum(each.waiting for each in notes),
        max((each.longest for each in notes), default=0) / 1000,
        sum(each.overdue for each in notes),
    )
    return Waiting(sum(len(state.left) for state in states), longest, overdue), apart


def grace(tick: float, poke_timeout: float) -> Milliseconds:
    """Return for how long a group may be past its deadline, beside its intervals. The parameters are seconds."""
    return round(1_000 * tick + 2_000 * poke_timeout)
