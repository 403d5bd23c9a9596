"""Pokes outside of jobs: nobody waits for them, and what they see is settled here.

Two kinds. Suspects hung, or were in a dead holder's hands: they are poked apart in child processes, those that hang in
one lane and those that may crash in another, until they are cleared or quarantined. And pokes that take long go on
where they are after their job has ended, so that it can give its range back. Either is marked as suspect in Redis, and
claimed, so that no job pokes it as well.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from sensorpool.clock import ClockWatch
from sensorpool.errors import Unreachable
from sensorpool.infra_window import Failing
from sensorpool.lease import Leases
from sensorpool.logs import logger
from sensorpool.metrics import Metrics
from sensorpool.model import DueGroup, Fact, Milliseconds, Report, ShardRange
from sensorpool.poke.apart import LaneApart
from sensorpool.poke.child import Suspect
from sensorpool.poke.poker import Poking
from sensorpool.record import Record
from sensorpool.settings import Settings
from sensorpool.settle import matters
from sensorpool.states import Outcome
from sensorpool.store import barring, loading
from sensorpool.store.database import Database
from sensorpool.watchdog import Watchdog

DEAD_HOLDER = "in a dead holder's hands"
OUT_OF_MEMORY = "ran out of memory"
OVERRAN = "overran its time limit"
SLOW = "its poke takes long"

_HUNG = (OVERRAN, SLOW)
_STILL_SUSPECT = frozenset({Outcome.POKE_TIMEOUT, Outcome.CRASHED})
_LOOK_EVERY = 0.05  # seconds

log = logger(__name__)


class Suspects:
    """The groups that this process pokes outside of jobs.

    :param settle: settles facts; called on the threads of the lanes.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leases: Leases,
        metrics: Metrics,
        clock: ClockWatch,
        watchdog: Watchdog,
        settle: Callable[[Sequence[Fact], bool], int],
    ) -> None:
        self.infra = Failing()
        self._settings = settings
        self._database = database
        self._leases = leases
        self._metrics = metrics
        self._clock = clock
        self._watchdog = watchdog
        self._settle = settle
        self._crashing = LaneApart(settings, self._take_apart, self._keep)
        self._hanging = LaneApart(settings, self._take_apart, self._keep)
        self._going_on: list[Poking] = []
        self._kept = 0.0
        self._thread: threading.Thread | None = None
        self._ranges: dict[int, ShardRange] = {}
        self._lock = threading.Lock()

    def offer(self, shard_range: ShardRange, groups: Mapping[DueGroup, str]) -> int:
        """Have suspects, each with why it is one, poked apart. Waits for nothing.

        :returns: how many are being poked still, here or in another process, and miss this turn.
        :raises Unreachable: when the database or Redis does not answer.
        """
        free = [group.id for group in groups if not self._has(group.id)]
        claimed = self._leases.claim(shard_range, free, self._claim_seconds)
        try:
            rows = self._database.read(lambda connection: loading.groups(connection, claimed))
        except Unreachable:
            self._leases.unclaim(shard_range, claimed)
            raise
        with self._lock:
            self._ranges.update((group.id, shard_range) for group, _, _ in rows)
        hung = {group.id for group, why in groups.items() if why in _HUNG and not group.crashes}
        suspects = [Suspect(*row, alone=row[0].crashes > 0) for row in rows]
        self._hanging.offer(suspect for suspect in suspects if suspect.group.id in hung)
        self._crashing.offer(suspect for suspect in suspects if suspect.group.id not in hung)
        return len(groups) - len(claimed)

    def adopt(self, shard_range: ShardRange, poking: Poking, infra: MutableMapping[str, Milliseconds]) -> None:
        """Let pokes go on that take too long for their job; the watchdog is on guard until they have ended.

        :param infra: since when groups of the range fail; what is known of these is taken out of it.
        :raises Unreachable: when Redis does not answer; they go on all the same.
        """
        group_ids = list(poking.outstanding)
        for group_id in group_ids:
            if (since := infra.pop(str(group_id), None)) is not None:
                self.infra.put(group_id, since)
        try:  # marked before they are looked after, which may clear them at once
            self._leases.suspect(shard_range, group_ids, SLOW)
            self._leases.claim(shard_range, group_ids, self._claim_seconds)
        finally:
            with self._lock:
                self._ranges.update(dict.fromkeys(group_ids, shard_range))
                self._going_on.append(poking)
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._look_after, daemon=True, name="poke-on")
                    self._thread.start()

    @property
    def _claim_seconds(self) -> float:
        return 3 * self._settings.heartbeat

    def _keep(self, group_ids: Sequence[int]) -> None:
        with self._lock:
            claims = [(self._ranges[group_id], group_id) for group_id in group_ids if group_id in self._ranges]
        if claims:
            self._leases.renew_claims(claims, self._claim_seconds)

    def _look_after(self) -> None:
        """Take what the pokes that go on see, until none does."""
        while True:
            with self._lock:
                going_on = list(self._going_on)
                if not going_on:
                    self._thread = None  # under the lock: whoever adopts next starts another
                    return
            for poking in going_on:
                try:
                    if reports := poking.step():
                        self._take(reports)
                except Unreachable as error:
                    log.warning("what slow pokes saw is lost; they are due again", error=str(error))
                except Exception:
                    log.exception("what slow pokes saw is lost; they are due again")
                if poking.is_over:
                    with self._lock:
                        self._going_on.remove(poking)
                    poking.end()
                    self._watchdog.rest()
            if time.monotonic() - self._kept >= self._settings.heartbeat:
                self._kept = time.monotonic()
                try:
                    self._keep([group_id for poking in going_on for group_id in list(poking.outstanding)])
                except Unreachable as error:
                    log.warning("claims on slow pokes were not renewed", error=str(error))
            time.sleep(_LOOK_EVERY)

    def _has(self, group_id: int) -> bool:
        if self._crashing.has(group_id) or self._hanging.has(group_id):
            return True
        with self._lock:
            return any(group_id in poking.outstanding for poking in self._going_on)

    def _take_apart(self, reports: Sequence[Report]) -> None:
        """Take what was seen in a child process of one's own: there a crash has one to blame."""
        self._take(reports, blame=True)

    def _take(self, reports: Sequence[Report], *, blame: bool = False) -> None:
        """Settle what was seen, and clear those who came through.

        :raises Unreachable: when the database or Redis does not answer; what was not settled is due again.
        """
        by_range: dict[ShardRange, list[Report]] = defaultdict(list)
        with self._lock:
            for report in reports:
                if (shard_range := self._ranges.pop(report.group.id, None)) is not None:
                    by_range[shard_range].append(report)
        try:
            self._settle_all(reports, by_range, blame)
        finally:  # whatever went wrong, they may be poked again
            for shard_range, own in by_range.items():
                self._leases.unclaim(shard_range, [report.group.id for report in own])

    def _settle_all(self, reports: Sequence[Report], by_range: Mapping[ShardRange, list[Report]], blame: bool) -> None:
        now, here = self._database.read(self._database.now), time.monotonic()
        trusted = self._clock.trusts(now)
        self._metrics.poked(reports)
        offsets = {report.group.id: round((report.began - here) * 1000) for report in reports}
        mattering = []
        for report in reports:
            group, fact = report.group, self._fact_of(report, now + offsets[report.group.id], blame)
            if matters(fact.outcome, fact.began_at, group.next_deadline, trusted):
                mattering.append(fact)
        if mattering:
            self._settle(mattering, trusted)
        for shard_range, own in by_range.items():
            record = Record(now)
            record.add(own, [offsets[report.group.id] for report in own])
            self._leases.keep_record(shard_range, record.text(), record.expires(report.group for report in own), now)
            cleared = [report.group.id for report in own if report.outcome not in _STILL_SUSPECT]
            self._leases.clear_suspects(shard_range, cleared)

    def _fact_of(self, report: Report, began_at: Milliseconds, blame: bool) -> Fact:
        group = report.group
        fact = Fact(group.id, group.version, began_at, report.outcome, report.reason, report.xcom_value)
        if report.outcome is Outcome.CRASHED:
            return self._blame(fact, group.crashes) if blame else fact
        return self.infra.within_window(fact, group.poke_interval, self._settings.infra_failure_window)

    def _blame(self, fact: Fact, seen: int) -> Fact:
        """Count a crash against its group; at the limit the condition is quarantined, and all who wait for it fail."""
        limit, reason = self._settings.crash_limit, fact.reason or ""
        now = self._database.read(self._database.now)
        crashes = self._database.run(lambda c: barring.count_crash(c, fact.group_id, seen, limit, reason, now))
        log.warning("a poke took its process down", group_id=fact.group_id, crashes=crashes, reason=reason)
        if crashes < limit:
            return fact
        why = f"quarantined: its poke took its process down {crashes} times, the last time: {reason}"
        return fact._replace(outcome=Outcome.FAIL, reason=why)
