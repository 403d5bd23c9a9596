"""One round of rescue, as its chores see it: what they work with, how far they have come, and what they have done."""

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from sensorpool.config.settings import Settings
from sensorpool.leases.lease import Leases
from sensorpool.publish.outbox import Outbox
from sensorpool.publish.publisher import Publisher
from sensorpool.settle.settler import Settler
from sensorpool.store.database import Database
from sensorpool.store.late_conditions import UsualLandings
from sensorpool.worker.context import Worker

ROWS = 1_000  # in a page, which one statement looks at
PAGES = 20  # in one round, of one table


@dataclass(slots=True)
class Place:
    """How far the walks through the tables have come: the last id of each; 0: the walk begins anew."""

    instances: int = 0
    groups: int = 0  # which are looked at for whether they are late

    def as_text(self) -> str:
        """Return the place for a round in another process."""
        return json.dumps(asdict(self))

    def go_to(self, text: str) -> None:
        """Go to the place of `as_text`; a text of another version changes nothing."""
        found = json.loads(text)
        if isinstance(found, dict):
            self.instances, self.groups = found.get("instances", 0), found.get("groups", 0)


@dataclass(slots=True)
class Rescued:
    """What a round did."""

    published: int = 0  # outbox rows of dead processes
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
    """What a chore works on."""

    settings: Settings
    database: Database
    leases: Leases
    settler: Settler
    outbox: Outbox
    publisher: Publisher
    usual_landings: UsualLandings
    place: Place
    done: Rescued


def begin(worker: Worker, place: Place) -> Round:
    """Begin a round of a process."""
    return Round(
        worker.settings, worker.database, worker.leases, worker.settler, worker.outbox, worker.publisher,
        worker.usual_landings, place, Rescued(),
    )  # fmt: skip
