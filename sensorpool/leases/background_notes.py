"""What the processes of a pool poke outside of jobs: a hash of each range, with a note of each process.

A note names the groups, so that no job pokes them as well, and says until when it holds. Its process renews it every
heartbeat. If it has not, the process is dead or frozen: the next holder of the range pokes the groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import TypeAdapter

from sensorpool.leases.range_state import RangeState, Whole
from sensorpool.model.values import Milliseconds


class Isolated(NamedTuple):
    """The groups that a process pokes in child processes.

    :param waiting: how many of them have waited for their poke for longer than a poke may take.
    :param overdue: how many of these for too many of their intervals.
    :param longest: milliseconds that the first of these has waited.
    """

    ids: Sequence[Whole] = ()
    waiting: Whole = 0
    overdue: Whole = 0
    longest: Whole = 0


class _Note(NamedTuple):
    slow: list[Whole]
    isolated: Isolated


_NOTE = TypeAdapter(_Note)


@dataclass(slots=True)
class InBackground:
    """What a holder finds of pokes outside of jobs.

    :ivar busy: groups that a living process pokes.
    :ivar struck: groups that a dead process poked itself, so that their poke may have ended it.
    :ivar again: groups that a dead process poked in children.
    :ivar dead: the dead processes.
    """

    busy: set[int] = field(default_factory=set)
    struck: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)


class Waiting(NamedTuple):
    """Groups that wait for a poke, and for how long the first of them has waited."""

    groups: int = 0
    seconds: float = 0.0
    overdue: int = 0  # how many of them have waited for too many of their intervals


def spell_note(slow: Sequence[int], isolated: Isolated) -> str:
    """Return a note without its time, for `read_background`; `note.lua` adds until when it holds."""
    return _NOTE.dump_json(_Note(list(slow), isolated)).decode()


def read_background(notes: Mapping[str, str], now: Milliseconds) -> InBackground:
    """Read the notes of a range.

    :param now: the time by Redis.
    :raises ValueError: when one is not ours.
    """
    found = InBackground()
    for owner, text in notes.items():
        until, rest = text.split(" ", 1)
        slow, isolated = _NOTE.validate_json(rest)
        if now < int(until):
            found.busy.update(slow, isolated.ids)
        else:
            found.struck += slow
            found.again += isolated.ids
            found.dead.append(owner)
    return found


def read_isolated(notes: Sequence[str]) -> list[Isolated]:
    """Read what the notes of a range say of groups in children.

    :raises ValueError: when one is not ours.
    """
    return [_NOTE.validate_json(text.partition(" ")[2]).isolated for text in notes]


def who_waits(states: Sequence[RangeState], isolated: Sequence[Sequence[Isolated]]) -> tuple[Waiting, Waiting]:
    """Return the groups that are left over, and the groups that wait for their poke in a child process.

    A job leaves over the groups for which it has no time, and counts the groups that have waited for too long. The
    notes of processes count those that wait for their turn in a child.

    :param isolated: the notes of processes on such groups, of each range.
    """
    notes = [each for notes in isolated for each in notes]
    left = Waiting(
        sum(len(state.left) for state in states),
        max((state.overdue_ms for state in states if state.overdue), default=0) / 1000,
        sum(state.overdue for state in states),
    )
    apart = Waiting(
        sum(each.waiting for each in notes),
        max((each.longest for each in notes), default=0) / 1000,
        sum(each.overdue for each in notes),
    )
    return left, apart
