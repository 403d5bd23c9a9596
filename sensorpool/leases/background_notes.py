"""What the processes of a pool poke outside of jobs: a hash of each range, with a note of each process.

A note names the groups, so that no job pokes them as well, and says until when it holds. Its process renews it every
heartbeat. If it has not, the process is dead or frozen: the next holder of the range pokes the groups.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Milliseconds, ShardRange

_GARBLED = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


class Isolated(NamedTuple):
    """The groups that a process pokes in child processes.

    :param waiting: how many of them have waited for their poke for longer than a poke may take.
    :param overdue: how many of these for too many of their intervals.
    :param longest: milliseconds that the first of these has waited.
    """

    ids: Sequence[int] = ()
    waiting: int = 0
    overdue: int = 0
    longest: Milliseconds = 0


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


def spell_background(slow: Sequence[int], isolated: Isolated) -> str:
    """Return a note without its time, for `read_background`; `note.lua` adds until when it holds."""
    return json.dumps([list(slow), *isolated])


def isolated(store: RedisStore, ranges: Sequence[ShardRange]) -> list[list[Isolated]]:
    """Return the notes of all processes on the groups that they poke in children, for each range.

    :raises Unreachable: when Redis does not answer.
    """
    pipeline = store.pipeline()
    for shard_range in ranges:
        pipeline.hvals(store.key(shard_range, "background"))
    found = ([_read(text) for text in texts] for texts in store.call(pipeline.execute))
    return [[note[2] for note in notes if note is not None] for notes in found]


def read_background(fields: Iterable[tuple[str, Any]], now: Milliseconds) -> InBackground:
    """Read the notes of a range; one that cannot be read is the note of a dead process with no groups.

    :param now: the time by Redis.
    """
    found = InBackground()
    for owner, text in fields:
        note = _read(text)
        if note is None:
            found.dead.append(owner)
            continue
        until, slow, isolated = note
        if now < until:
            found.busy.update(slow, isolated.ids)
        else:
            found.struck += slow
            found.again += isolated.ids
            found.dead.append(owner)
    return found


def _read(text: Any) -> tuple[Milliseconds, list[int], Isolated] | None:
    try:
        until, rest = str(text).split(" ", 1)
        slow, ids, *figures = json.loads(rest)
        waiting, overdue, longest = map(int, figures)
        return int(until), list(map(int, slow)), Isolated(list(map(int, ids)), waiting, overdue, longest)
    except _GARBLED:
        return None
