"""One round of rescue, as its chores see it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from sensorpool.worker.chores.pages import Walk
from sensorpool.worker.context import Worker

TRIES_LATER = object()


@dataclass(slots=True)
class Place:
    """How far the walks through the tables have come."""

    instances: Walk = field(default_factory=Walk)
    groups: Walk = field(default_factory=Walk)
    waiting_id: int = 0  # the last group that was looked at for whether it is late; 0: the next look begins anew
    rounds: int = 0  # that have begun


@dataclass(slots=True)
class Rescued:
    """What a round did."""

    published: int = 0  # outbox rows of dead processes
    strays: int = 0  # rows that only a hand on the tables could have made
    pruned: int = 0
    listeners: int = 0  # abandoned queues
    let_out: int = 0  # of quarantine
    late: int = 0  # conditions that are later than usual, found in this round
    folded: int = 0  # groups beyond a shard_code_upper_limit that was lowered
    more: dict[str, int] = field(default_factory=dict)  # what the rescuers of other packages did

    def as_dict(self) -> dict[str, int]:
        """Return what was not zero."""
        counted = asdict(self)
        return {name: value for name, value in (counted | counted.pop("more")).items() if value}


class Round(NamedTuple):
    """What a chore works on: the worker, how far the walks have come, and what the round has done so far."""

    worker: Worker
    place: Place
    done: Rescued


class Chore(NamedTuple):
    """A chore of rescue.

    :param name: as `health` says it.
    :param work: does the chore for one round; any error is the chore's alone. Returns `TRIES_LATER` where what failed
        in an earlier round has its next turn in a later one: then this round says nothing of whether the chore fails.
    :param every: in how many rounds the chore has its turn once; the first round of a process has all.
    """

    name: str
    work: Callable[[Round], object]
    every: int = 1
