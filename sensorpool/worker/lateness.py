"""Lateness: groups whose pokes do not come in time although jobs look at every range. Then `health` names the mend.

A group may wait in two places. A job leaves over the groups for which it has no time, and counts the groups that have
waited for too long (`range_state`). An isolated group waits for its turn in a child
process: the notes of processes count these.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import printable
from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.range_state import MISSED, RangeState
from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.store import inspecting
from sensorpool.store.database import Database

_AT_ONCE = 10_000  # groups


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


def missed_interval(database: Database, shard_range: ShardRange, age: float) -> float | None:
    """Return the shortest interval (seconds) of a range's groups if `MISSED` of them have passed; otherwise None.

    None also when the database does not answer.

    :param age: seconds since the last load of the range.
    """
    try:
        shortest = database.read(inspecting.shortest_interval, shard_range)
    except Unreachable:
        return None
    return shortest / 1000 if shortest is not None and age * 1000 > MISSED * shortest else None


def past_deadline(database: Database, tick: float, poke_timeout: float) -> list[str]:
    """Return a line if groups are long past their deadline, whatever the reason.

    :param tick: seconds between two ticks of the pool.
    :param poke_timeout: seconds.
    :raises Unreachable: when the database does not answer.
    """
    now = database.read(database.now)
    count, first = database.read(inspecting.past_deadline, now, MISSED, grace(tick, poke_timeout))
    if first is None:
        return []
    group_id, op_classpath, deadline = first
    groups = "1 group is past its deadline" if count == 1 else f"{count:,} groups are past their deadlines"
    return [
        f"{groups} by more than {MISSED} intervals, group {group_id} ({printable(op_classpath)[:200]}) by "
        f"{(now - deadline) / 1000:.0f} s: it was not poked, or what was seen not settled; the workers' logs say more"
    ]


def grace(tick: float, poke_timeout: float) -> Milliseconds:
    """Return for how long a group may be past its deadline, beside its intervals. The parameters are seconds."""
    return round(1_000 * tick + 2_000 * poke_timeout)


def problems(left: Waiting, set_apart: Waiting) -> list[str]:
    """Return a line for each place in which groups wait for too long, with the mend."""
    said = []
    if left.overdue:
        said.append(
            f"the workers cannot keep up: {_groups(left.overdue)} for a poke for more than {MISSED} intervals, the "
            f"longest for {left.seconds:.0f} s: more workers, a higher SENSORPOOL_POKE_CONCURRENCY, or longer intervals"
        )
    if set_apart.overdue:
        said.append(
            f"{_groups(set_apart.overdue)} to be poked apart for more than {MISSED} intervals, the longest for "
            f"{set_apart.seconds:.0f} s: mend what hangs, or more workers, a higher "
            "SENSORPOOL_HANGING_CONCURRENCY, a shorter SENSORPOOL_POKE_TIMEOUT"
        )
    return said


def _groups(count: int) -> str:
    return "1 group waits" if count == 1 else f"{count:,} groups wait"
