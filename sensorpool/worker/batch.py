"""What the pokes of one round in one range have seen, from the poke to the settle."""

from collections.abc import Collection
from dataclasses import dataclass, field

from sensorpool.leases.poke_log import Record
from sensorpool.model.identity import shardcode
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import DueGroup, Fact, JobResult, ShardRange
from sensorpool.store.troubles import Changed
from sensorpool.worker.load import Moment

_TRIED_EACH_TICK = 60_000  # milliseconds for which a group that no process could poke is tried at each tick


@dataclass(slots=True, eq=False)
class Batch:
    """What a round has seen so far. Belongs to the thread of its job, and then to the thread of `Background`.

    :param troubles: the groups of the range that are in trouble, as this round knows them.
    :param result: what the job has done; counted up.
    """

    shard_range: ShardRange
    moment: Moment  # of its load
    troubles: dict[int, Trouble]
    result: JobResult
    record: Record
    facts: list[Fact] = field(default_factory=list)  # not settled yet
    changed: dict[int, Changed] = field(default_factory=dict)  # troubles that are not written yet
    not_here: list[int] = field(default_factory=list)  # groups that this process turned out not to be able to poke
    last_began: float = 0.0  # when the last poke began, by the monotonic clock; 0: there was none

    def change(self, group: DueGroup, trouble: Trouble, limit: int) -> None:
        """Note the trouble of a group from now on.

        :param limit: `Settings.shard_code_upper_limit`.
        """
        self.troubles[group.id] = trouble
        self.changed[group.id] = Changed(trouble, shardcode(group.hashcode, limit))

    def take_not_here(self) -> list[int]:
        """Take out the groups that this process could not poke; return those that are tried again at the next tick."""
        not_here, self.not_here = self.not_here, []
        now = self.moment.now
        return [i for i in not_here if now - (self.troubles[i].unpokeable_since or now) < _TRIED_EACH_TICK]

    def are_healthy(self, group_ids: Collection[int]) -> bool:
        """Whether none of these groups is in trouble."""
        return not self.troubles or self.troubles.keys().isdisjoint(group_ids)
