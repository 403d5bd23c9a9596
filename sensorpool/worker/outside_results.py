"""Settles what pokes outside of jobs see: pokes of suspects, and pokes that go on after their job."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Leases
from sensorpool.leases.poke_log import Record
from sensorpool.model.states import Outcome
from sensorpool.model.unsettled import Known, from_registration
from sensorpool.model.values import Fact, Milliseconds, Report, Settlement, ShardRange, Unsettled
from sensorpool.settle.decide import matters
from sensorpool.settle.infra_window import OutsideWindow
from sensorpool.settle.overruns import counted, is_last
from sensorpool.store import admission
from sensorpool.store.database import Database
from sensorpool.worker import overruns
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.failing_pokes import FailingPokes
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.outages import BackendsAway
from sensorpool.worker.told_failures import ToldFailures

_STILL_SUSPECT = frozenset({Outcome.POKE_TIMEOUT, Outcome.CRASHED, Outcome.CANNOT_POKE})
_NOT_HERE = 10_000  # remembered
_STRIKES = 2  # after which a group is poked alone

log = logger(__name__)


class OutsideResults:
    """Settles reports of pokes outside of jobs, and clears suspects whose poke ended in good time. Safe to share.

    :param settle: settles facts.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leases: Leases,
        metrics: Metrics,
        clock: ClockWatch,
        settle: Callable[[Sequence[Fact], bool, Known], Settlement],
        failing_pokes: FailingPokes,
        away: BackendsAway,
    ) -> None:
        self.not_here: dict[int, str] = {}  # groups that this process turned out not to be able to poke, and why
        self._settings = settings
        self._database = database
        self._leases = leases
        self._metrics = metrics
        self._clock = clock
        self._settle_facts = settle
        self._failing_pokes = failing_pokes
        self._away = away
        self._failures = ToldFailures(leases.outside_failures)
        self._unsettled: set[int] = set()  # groups that this process noted as unsettled
        self._stranded: set[int] = set()  # groups that were left to other processes
        self._lock = threading.Lock()

    def expect_stranded(self, group_ids: Collection[int]) -> None:
        """Have the next job told of a poke of these groups: they were left to other processes."""
        with self._lock:
            self._stranded.update(group_ids)

    def settle(self, reports: Sequence[Report], by_range: Mapping[ShardRange, list[Report]]) -> None:
        """Settle what was seen, and clear the groups whose poke ended in good time.

        :param by_range: the reports whose range is known.
        :raises Unreachable: when the database or Redis does not answer; what was not settled is due again.
        """
        now, here = self._database.read(self._database.now), time.monotonic()
        self._metrics.poked(reports)
        self._failing_pokes.take(reports)
        told = self._failures.of(by_range)
        known = {group_id: each for one in told.values() for group_id, each in one.failing.items()}
        window = OutsideWindow(self._settings.infra_failure_window, known)
        offsets = {report.group.id: round((report.began - here) * 1000) for report in reports}
        began_at = {group_id: now + offset for group_id, offset in offsets.items()}
        trusted = self._clock.trusts(now, here)
        done = Settlement(0, {})
        try:
            facts = self._facts(reports, by_range, began_at, window, trusted)
            self._away.take(reports)
            if facts:
                groups = [report.group for report in reports]
                done = self._settle_facts(
                    facts, trusted, lambda _: from_registration(self._leases.unsettled.of(by_range), groups)
                )
        finally:  # what a poke has answered counts, though its result cannot be written
            self._failures.tell(by_range, told, window)
        self._note_unsettled(by_range, done.unsettled)
        for shard_range, own in by_range.items():
            record = Record(now)
            record.add(own, [offsets[report.group.id] for report in own])
            self._leases.poke_log.keep(shard_range, record.texts(), now)
            passed = [report.group.id for report in own if report.outcome not in _STILL_SUSPECT]
            self._leases.suspects.clear(shard_range, passed)
            if healed := [report.group.id for report in own if report.group.crashes and report.group.id in passed]:
                self._database.run(admission.clear_crashes, healed)
            if poked := self._no_longer_stranded(own):
                self._leases.poked_apart.keep(shard_range, {group_id: now + offsets[group_id] for group_id in poked})

    def _facts(
        self,
        reports: Sequence[Report],
        by_range: Mapping[ShardRange, list[Report]],
        began_at: Mapping[int, Milliseconds],
        window: OutsideWindow,
        trusted: bool,
    ) -> list[Fact]:
        """Return the facts that can change anything."""
        in_a_row: dict[int, int] = {}
        for shard_range, own in by_range.items():
            in_a_row |= overruns.count(self._leases, self._settings, shard_range, own)
        facts = []
        # those first that are not asked of the database, which may be away
        for report in sorted(reports, key=_is_crash):
            group = report.group
            if report.outcome is Outcome.CANNOT_POKE:  # this process's next job leaves it to the others
                if len(self.not_here) < _NOT_HERE:
                    self.not_here[group.id] = report.reason or ""
                continue
            if report.of_many and report.outcome is Outcome.POKE_TIMEOUT:  # each group's poke apart is judged instead
                window.end(group.id, began_at[group.id])
                continue
            if is_strike(report):
                continue
            fact = self._fact_of(report, began_at[group.id], window)
            if report.outcome is Outcome.POKE_TIMEOUT:
                fact = counted(fact, in_a_row.get(group.id, 0), self._settings.overrun_limit)
            if is_last(fact) or matters(fact.outcome, fact.began_at, group.next_deadline, trusted):
                facts.append(fact)
        return facts

    def _fact_of(self, report: Report, began_at: Milliseconds, window: OutsideWindow) -> Fact:
        group = report.group
        fact = Fact(group.id, group.version, began_at, report.outcome, report.reason, report.xcom_value)
        if report.outcome is Outcome.CRASHED:
            return self._blame(fact, group.crashes)
        return window.judge(fact, group.poke_interval, group.registered_at, took=round(report.seconds * 1000))

    def _blame(self, fact: Fact, seen: int) -> Fact:
        """Count a strike against its group; at the limit the condition is quarantined, and its instances fail."""
        limit, reason = self._settings.crash_limit, fact.reason or ""
        now = self._database.read(self._database.now)
        crashes = self._database.run(admission.count_crash, fact.group_id, seen, limit, reason, now, _STRIKES)
        log.warning("a poke took its process down", group_id=fact.group_id, crashes=crashes, reason=reason)
        if crashes < limit:
            return fact
        why = f"quarantined: its poke took its process down {crashes} times, the last time: {reason}"
        return fact._replace(outcome=Outcome.FAIL, reason=why)

    def _note_unsettled(self, by_range: Mapping[ShardRange, list[Report]], unsettled: Mapping[int, Unsettled]) -> None:
        """Note the groups whose result could not be written; forget the noted ones whose result was written now."""
        if not unsettled and not self._unsettled:
            return
        for shard_range, own in by_range.items():
            group_ids = {report.group.id for report in own}
            noted = {group_id: each for group_id, each in unsettled.items() if group_id in group_ids}
            self._leases.unsettled.keep(shard_range, noted, (self._unsettled & group_ids) - noted.keys())
            self._unsettled = (self._unsettled - group_ids) | noted.keys()

    def _no_longer_stranded(self, reports: Sequence[Report]) -> set[int]:
        """Return the groups that were left to other processes, and that this one has poked now."""
        with self._lock:
            found = self._stranded.intersection([report.group.id for report in reports])
            self._stranded -= found
        return found - {report.group.id for report in reports if report.outcome is Outcome.CANNOT_POKE}


def is_strike(report: Report) -> bool:
    """Whether a child died with a group in hand, and it is not known that the group's poke was the cause."""
    return report.outcome is Outcome.CRASHED and not report.own_doing


def _is_crash(report: Report) -> bool:
    return report.outcome is Outcome.CRASHED
