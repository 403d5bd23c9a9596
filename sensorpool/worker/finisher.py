"""The finisher: the one place that takes what pokes saw, whoever made them. It counts, judges, and has it settled.

A job calls it on its own thread, and `Background` for the pokes that are made outside of jobs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.poke_log import Record
from sensorpool.model.identity import shardcode
from sensorpool.model.not_landed import NotLanded, Seen, apart
from sensorpool.model.states import Outcome
from sensorpool.model.trouble import HEALTHY, Trouble
from sensorpool.model.values import DueGroup, Fact, JobResult, Milliseconds, Report, ShardRange
from sensorpool.poke.cache import Cache
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.decide import matters
from sensorpool.settle.judge import Rules, is_last, is_quarantined, judge, quarantined, struck
from sensorpool.settle.settler import Settler
from sensorpool.store import troubles
from sensorpool.store.database import Database
from sensorpool.store.troubles import Changed
from sensorpool.worker.breakers import Breakers
from sensorpool.worker.failing_pokes import FailingPokes
from sensorpool.worker.load import Moment
from sensorpool.worker.metrics import Metrics

_TRIED_EACH_TICK = 60_000  # milliseconds for which a group that no process could poke is tried at each tick
_DIED = "the worker that poked it died or froze"

log = logger(__name__)


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


class Finisher:
    """Takes reports in and settles what they mean. Safe to share between threads; a batch belongs to one."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        settler: Settler,
        cache: Cache,
        metrics: Metrics,
        breakers: Breakers,
        failing_pokes: FailingPokes,
    ) -> None:
        self._rules = Rules(
            settings.infra_failure_window, settings.crash_limit, settings.overrun_limit, settings.tick_ms
        )
        self._limit = settings.shard_code_upper_limit
        self._database = database
        self._settler = settler
        self._cache = cache
        self._metrics = metrics
        self._breakers = breakers
        self._failing_pokes = failing_pokes

    def take(self, batch: Batch, seen: Sequence[Seen]) -> None:
        """Count and judge what pokes saw.

        :raises Unreachable: when Redis does not answer.
        """
        if not seen:
            return
        failpoint("poke.after")
        reports, many = apart(seen)
        self._metrics.poked(reports, many)
        self._breakers.take(reports, many)
        self._failing_pokes.take(reports)
        for each in many:
            if self._changes_nothing(batch, each):
                batch.record.add_not_landed(each, _offsets(each.began, batch))
                batch.result.poked += len(each.ids)
                batch.result.saved += each.members - len(each.ids)
                batch.last_began = max(batch.last_began, each.began[-1])
            else:
                reports += each.reports()
        if reports:
            self._judge(batch, reports)

    def strike(self, batch: Batch, units: Iterable[PokeUnit]) -> None:
        """Strike groups whose worker died with their poke in hand, and write that at once.

        :raises Unreachable: when the database does not answer.
        """
        for unit in units:
            known = batch.troubles.get(unit.group.id, HEALTHY)
            batch.change(unit.group, struck(known, _DIED), self._limit)
        if batch.changed:
            log.warning(
                "a worker died; the groups in its hands are poked in child processes", groups=len(batch.changed)
            )
            self._write(batch)

    def refuse_quarantined(self, batch: Batch, units: Sequence[PokeUnit]) -> list[PokeUnit]:
        """Fail the waiters of conditions that have reached their last strike; return the other groups.

        A process that died before it had settled that leaves such groups behind.
        """
        others: list[PokeUnit] = []
        for unit in units:
            trouble, group = batch.troubles.get(unit.group.id, HEALTHY), unit.group
            if not is_quarantined(trouble, self._rules):
                others.append(unit)
                continue
            fact = Fact(group.id, group.version, batch.moment.now, Outcome.FAIL)
            batch.facts.append(quarantined(fact, trouble))
            batch.change(group, trouble, self._limit)
        return others

    def flush(self, batch: Batch) -> None:
        """Write the troubles that have changed, and settle the facts so far.

        :raises Unreachable: when the database does not answer; what was not settled is due again.
        """
        if batch.changed:
            self._write(batch)
        if batch.facts:
            facts, batch.facts = batch.facts, []
            batch.result.settled += self._settler.settle(facts, batch.moment.trusted)

    def _changes_nothing(self, batch: Batch, each: NotLanded) -> bool:
        """Whether pokes that found nothing need no look at each: no group is in trouble, and no deadline has passed."""
        if not batch.are_healthy(each.ids):
            return False
        return not batch.moment.trusted or each.deadline is None or batch.moment.at(each.began[-1]) < each.deadline

    def _judge(self, batch: Batch, reports: Sequence[Report]) -> None:
        result, trusted = batch.result, batch.moment.trusted
        started = batch.moment.monotonic
        batch.record.add(reports, [int((report.began - started) * 1000) for report in reports])
        result.poked += len(reports)
        result.saved += sum([report.group.members for report in reports]) - len(reports)
        batch.last_began = max(batch.last_began, reports[-1].began)
        for report in reports:
            group, outcome, began_at = report.group, report.outcome, batch.moment.at(report.began)
            known = batch.troubles.get(group.id)
            if outcome is Outcome.NOT_LANDED and known is None:
                if trusted and group.next_deadline is not None and began_at >= group.next_deadline:
                    batch.facts.append(Fact(group.id, group.version, began_at, outcome))
                continue
            fact, trouble = judge(report, began_at, known or HEALTHY, self._rules)
            if trouble != (known or HEALTHY):
                batch.change(group, trouble, self._limit)
            if outcome is Outcome.LANDED:
                result.landed += 1
            elif outcome is Outcome.CANNOT_POKE:
                result.count("not_here", 1)
                batch.not_here.append(group.id)
                self._cache.note_unpokeable(group.id, report.reason or "")
                if not trusted:
                    fact = None
            elif outcome is not Outcome.NOT_LANDED:
                result.errors += 1
            if fact is not None and (
                is_last(fact) or matters(fact.outcome, fact.began_at, group.next_deadline, trusted)
            ):
                batch.facts.append(fact)

    def _write(self, batch: Batch) -> None:
        """Write the troubles that have changed, and quarantine the conditions that have reached their last strike."""
        changed, batch.changed = batch.changed, {}
        now, last = batch.moment.now, self._last_strikes(changed)

        def change(connection: Connection) -> None:
            troubles.write(connection, changed)
            for group_id, each in last.items():
                troubles.quarantine(connection, group_id, each.trouble, now)

        self._database.run(change)
        if last:
            log.warning("conditions are quarantined: their pokes take processes down", groups=len(last))

    def _last_strikes(self, changed: dict[int, Changed]) -> dict[int, Changed]:
        return {group_id: each for group_id, each in changed.items() if is_quarantined(each.trouble, self._rules)}


def _offsets(began: Sequence[float], batch: Batch) -> list[Milliseconds]:
    """Return how long after the load each poke began; pokes in a row often begin within one millisecond."""
    started = batch.moment.monotonic
    first = int((began[0] - started) * 1000)
    if first == int((began[-1] - started) * 1000):
        return [first] * len(began)
    return [int((each - started) * 1000) for each in began]
