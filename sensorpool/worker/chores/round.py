"""One round of rescue, as its chores see it."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import NamedTuple

from sensorpool.worker.chores.pages import REST, Walk
from sensorpool.worker.context import Worker

_LARGEST = 2**63 - 1  # of an id


@dataclass(slots=True)
class Place:
    """How far the walks through the tables have come."""

    instances: Walk = field(default_factory=Walk)
    groups: Walk = field(default_factory=Walk)
    waiting_id: int = 0  # the last group that was looked at for whether it is late; 0: the next look begins anew
    rounds: int = 0  # that have begun

    def as_text(self) -> str:
        """Return the place for a round in another process."""
        walks = [[walk.after_id, int(walk.is_in_order), walk.rest] for walk in (self.instances, self.groups)]
        return json.dumps([*walks, self.waiting_id, self.rounds])

    def in_next_round(self) -> str:
        """Return the place for a round that begins before this one has ended."""
        return replace(self, rounds=self.rounds + 1).as_text()

    def go_to(self, text: str) -> None:
        """Go to the place of `as_text`; a text that cannot be read changes nothing."""
        if (there := _read(text)) is not None:
            for each in fields(self):
                setattr(self, each.name, getattr(there, each.name))

    def is_behind(self, text: str) -> bool:
        """Whether a place of `as_text` is one of a later round."""
        there = _read(text)
        return there is not None and there.rounds > self.rounds


def _read(text: str) -> Place | None:
    try:
        instances, groups, waiting_id, rounds = json.loads(text)
        first, second = (Walk(_whole(id), bool(good), _whole(rest, REST)) for id, good, rest in (instances, groups))
        return Place(first, second, _whole(waiting_id), _whole(rounds))
    except (ValueError, TypeError, RecursionError):
        return None


def _whole(number: object, most: int = _LARGEST) -> int:
    """Return a number that is whole, and no larger than allowed.

    :raises ValueError: for anything else.
    """
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(number)
    return number


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
    :param work: does the chore for one round; any error is the chore's alone.
    :param every: in how many rounds the chore has its turn once; the first round of a pool has all.
    """

    name: str
    work: Callable[[Round], None]
    every: int = 1
