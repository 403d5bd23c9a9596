"""One round of a job as one value: every field is there from the start, and each step of `worker.job` works on it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sensorpool.config.settings import Settings
from sensorpool.leases.lease import Acquired, Lease
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import JobResult, ShardRange
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.infra_window import RangeFailures
from sensorpool.worker.context import Worker
from sensorpool.worker.load import Loaded, Moment
from sensorpool.worker.outages import Sifted
from sensorpool.worker.outcomes import Outcomes
from sensorpool.worker.stranded import Stranded


class Visit(NamedTuple):
    """What a job has of one range while it holds the lease."""

    shard_range: ShardRange
    held: Acquired  # the lease, and what is known of the range
    result: JobResult  # of all rounds of the job


@dataclass(frozen=True, slots=True)
class JobRun:
    """One round of a job in one range, made once its load is done: a step that needs the load cannot run before it."""

    worker: Worker
    shard_range: ShardRange
    held: Acquired  # the lease, and what is known of the range
    result: JobResult  # of all rounds of the job
    began: float  # when the round began, by the monotonic clock
    moment: Moment  # when it loaded, by both clocks
    loaded: Loaded
    infra: RangeFailures
    stranded: Stranded
    outcomes: Outcomes

    @property
    def settings(self) -> Settings:
        """The settings of the pool."""
        return self.worker.settings

    @property
    def lease(self) -> Lease:
        """The lease of the range."""
        return self.held.lease

    def sift(self, units: Sequence[PokeUnit]) -> Sifted:
        """Return which groups are poked now, and which have to wait for their backend; count these.

        :raises Unreachable: when Redis does not answer.
        """
        now = self.moment.at(time.monotonic())
        sifted = self.worker.away.sift(units, now, set(self.held.state.left), self.lease.token)
        if sifted.missed:
            self.result.count("held", sifted.missed.total())
            self.result.count_each("held_of", sifted.missed)
            self.worker.metrics.held(sifted.missed)
        return sifted

    def tell_failures(self, group_ids: Iterable[int]) -> None:
        """Tell all processes since when groups fail whose next poke is outside of jobs: what it answers ends that.

        A holder that lost its lease tells nothing: another poke may have answered since.

        :raises Unreachable: when Redis does not answer.
        """
        failing = self.infra.leave_outside(group_ids, self.moment.now)
        if failing and self.lease.is_ours():
            self.worker.leases.outside_failures.keep(self.shard_range, failing)

    def suspect(self, group_ids: list[int], why: Suspicion) -> None:
        """Have groups poked apart from now on, in this job's next round too.

        :raises Unreachable: when Redis does not answer.
        """
        self.held.suspects.update(dict.fromkeys(group_ids, why))
        self.worker.leases.suspects.mark(self.shard_range, group_ids, why)
