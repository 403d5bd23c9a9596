"""Suspects: groups that hung or were in a dead holder's hands. They are poked apart, and cleared or quarantined."""

import threading
import time
from collections.abc import Callable, Sequence

from sensorpool.clock import ClockWatch
from sensorpool.lease import Leases
from sensorpool.logs import logger
from sensorpool.metrics import Metrics
from sensorpool.model import DueGroup, Fact, Milliseconds, Report, ShardRange
from sensorpool.poke.apart import LaneApart, Suspect
from sensorpool.settings import Settings
from sensorpool.settle import matters
from sensorpool.states import Outcome
from sensorpool.store import closing, loading
from sensorpool.store.database import Database

_STILL_SUSPECT = frozenset({Outcome.POKE_TIMEOUT, Outcome.CRASHED})

log = logger(__name__)


class Suspects:
    """The suspects that this process has in hand.

    :param settle: settles facts; called on the thread of the lane apart.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leases: Leases,
        metrics: Metrics,
        clock: ClockWatch,
        settle: Callable[[Sequence[Fact]], int],
    ) -> None:
        self._settings = settings
        self._database = database
        self._leases = leases
        self._metrics = metrics
        self._clock = clock
        self._settle = settle
        self._lane = LaneApart(settings, self._take, self._keep)
        self._ranges: dict[int, ShardRange] = {}
        self._lock = threading.Lock()

    def offer(self, shard_range: ShardRange, groups: Sequence[DueGroup]) -> None:
        """Have suspects poked apart, save those that some process has in hand. Waits for nothing.

        :raises Unreachable: when the database or Redis does not answer.
        """
        claimed = [
            group.id
            for group in groups
            if not self._lane.has(group.id) and self._leases.claim_alone(shard_range, group.id, self._claim_seconds)
        ]
        rows = self._database.read(lambda connection: loading.groups(connection, claimed))
        with self._lock:
            self._ranges.update((group.id, shard_range) for group, _, _ in rows)
        self._lane.offer(
            Suspect(group, op_classpath, poke_context, alone=group.crashes > 0)
            for group, op_classpath, poke_context in rows
        )

    @property
    def _claim_seconds(self) -> float:
        return max(self._settings.lease_ttl, 2 * self._settings.poke_timeout)

    def _keep(self, group_ids: Sequence[int]) -> None:
        for group_id in group_ids:
            shard_range = self._ranges.get(group_id)
            if shard_range is not None:
                self._leases.renew_claim(shard_range, group_id, self._claim_seconds)

    def _take(self, reports: Sequence[Report]) -> None:
        """Settle what the lane apart saw, and clear those who came through."""
        now, here = self._database.read(self._database.now), time.monotonic()
        trusted = self._clock.trusts(now)
        facts = [self._fact_of(report, now - round((here - report.began) * 1000)) for report in reports]
        deadlines = {report.group.id: report.group.next_deadline for report in reports}
        mattering = [f for f in facts if matters(f.outcome, f.began_at, deadlines[f.group_id], trusted)]
        if mattering:
            self._settle(mattering)
        for report in reports:
            with self._lock:
                shard_range = self._ranges.pop(report.group.id, None)
            if shard_range is not None:
                if report.outcome not in _STILL_SUSPECT:
                    self._leases.clear_suspects(shard_range, [report.group.id])
                self._leases.unclaim(shard_range, report.group.id)

    def _fact_of(self, report: Report, began_at: Milliseconds) -> Fact:
        group, reason = report.group, report.reason
        self._metrics.poked([report])
        if report.outcome is Outcome.CRASHED:
            crashes = self._database.run(lambda connection: closing.count_crash(connection, group.id))
            log.warning("a poke took its process down", group_id=group.id, crashes=crashes, reason=reason)
            if crashes >= self._settings.crash_limit:
                why = f"quarantined: its poke took its process down {crashes} times, the last time: {reason}"
                return Fact(group.id, group.version, began_at, Outcome.FAIL, why)
        return Fact(group.id, group.version, began_at, report.outcome, reason, report.xcom_value)
