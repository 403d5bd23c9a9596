"""What the pokes of one round of a job saw: counted, judged, and kept as facts until they are settled. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sensorpool.leases.poke_log import Record
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.unsettled import MOST
from sensorpool.model.values import Fact, JobResult, Milliseconds, Report, Settlement, Unsettled
from sensorpool.settle.decide import matters
from sensorpool.settle.infra_window import RangeFailures
from sensorpool.settle.overruns import counted, is_last
from sensorpool.worker.load import Moment
from sensorpool.worker.stranded import Stranded

_NOT_LANDED = Outcome.NOT_LANDED


class Exceptional(NamedTuple):
    """Reports after which a group is treated otherwise."""

    overran: list[Report]  # not judged yet: `Outcomes.take_overruns`
    cannot: list[Report]  # this process cannot poke them


def _offsets(began: Sequence[float], started: float) -> list[Milliseconds]:
    """Return how long after the load each poke began; pokes in a row often begin within one millisecond."""
    first = _offset(began[0], started)
    if first == _offset(began[-1], started):
        return [first] * len(began)
    return [_offset(each, started) for each in began]


def _offset(began: float, started: float) -> Milliseconds:
    """Return how long after the load a poke began."""
    return int((began - started) * 1000)


class Outcomes:
    """Counts and judges the reports of one round. Belongs to the thread of its job.

    :param result: what the job has done; counted up.
    :param unsettled: the groups of the range whose result could not be written; kept up to date.
    :param overrun_limit: `Settings.overrun_limit`.
    """

    def __init__(
        self,
        moment: Moment,
        result: JobResult,
        infra: RangeFailures,
        stranded: Stranded,
        unsettled: dict[int, Unsettled],
        *,
        overrun_limit: int,
    ) -> None:
        self.record = Record(moment.now)
        self.facts: list[Fact] = []  # not settled yet
        self.written: set[int] = set()  # groups that were unsettled, and are so no more
        self.last_began = 0.0  # when the last poke began, by the monotonic clock; 0: there was none
        self.unsettled = unsettled
        self._moment = moment
        self._result = result
        self._infra = infra
        self._stranded = stranded
        self._overrun_limit = overrun_limit

    def take(self, reports: Sequence[Report], many: Sequence[NotLanded] = ()) -> Exceptional:
        """Count what pokes saw, and keep the facts that can change anything.

        :param many: pokes that found nothing, which cost least: only where that may matter is each looked at.
        """
        now, started, trusted = self._moment
        watched = self._infra or self.unsettled
        reports = list(reports)
        for each in many:
            deadline = each.deadline
            if watched or (trusted and deadline is not None and now + _offset(each.began[-1], started) >= deadline):
                reports += each.reports()
                continue
            self.record.add_not_landed(each, _offsets(each.began, started))
            self._result.poked += len(each.ids)
            self._result.saved += each.members - len(each.ids)
            self.last_began = max(self.last_began, each.began[-1])
        if not reports:
            return Exceptional([], [])
        offsets = [_offset(report.began, started) for report in reports]
        self.record.add(reports, offsets)
        self._result.poked += len(reports)
        self._result.saved += sum([report.group.members for report in reports]) - len(reports)
        self.last_began = max(self.last_began, reports[-1].began)
        exceptional = Exceptional([], [])
        for report, offset in zip(reports, offsets, strict=True):
            if report.outcome is _NOT_LANDED and not watched:
                deadline = report.group.next_deadline
                if not trusted or deadline is None or now + offset < deadline:
                    continue
            outcome = report.outcome
            if outcome is Outcome.POKE_TIMEOUT:
                exceptional.overran.append(report)
            elif outcome is Outcome.CANNOT_POKE:
                exceptional.cannot.append(report)
                self._leave(report, now + offset)
            else:
                self._judge(report, now + offset)
        return exceptional

    def take_overruns(self, reports: Iterable[Report], in_a_row: Mapping[int, int]) -> None:
        """Judge pokes that overran their limit; after a call for many, each group's poke apart is judged instead.

        :param in_a_row: how many pokes of a group did so, with this one, by group id.
        """
        for report in reports:
            if report.of_many:
                self._infra.end(report.group.id)
                self._result.errors += 1
            else:
                self._judge(report, self._moment.at(report.began), in_a_row.get(report.group.id, 0))

    def hand_over(self) -> list[Fact]:
        """Return the facts to be settled; they are not kept any longer."""
        facts, self.facts = self.facts, []
        return facts

    def settled(self, facts: Sequence[Fact], done: Settlement) -> None:
        """Count what came of the facts, and note which groups are unsettled now, and which are so no more."""
        known, ours = self.unsettled, {fact.group_id for fact in facts}
        self._result.settled += done.ended
        if known:
            written = ours & known.keys() - done.unsettled.keys()
            self.written |= written
            for group_id in written:
                del known[group_id]
        if unsettled := done.unsettled:
            self._result.count("unsettled", len(unsettled))
            for group_id, each in unsettled.items():
                if group_id in known or len(known) < MOST:
                    known[group_id] = each
            self.written -= known.keys()

    def _judge(self, report: Report, began_at: Milliseconds, in_a_row: int = 0) -> None:
        """Keep the fact of a report that saw something, or came after a deadline."""
        group, outcome = report.group, report.outcome
        fact = Fact(group.id, group.version, began_at, outcome, report.reason, report.xcom_value)
        if outcome is Outcome.LANDED:
            self._result.landed += 1
        elif outcome is not _NOT_LANDED:
            self._result.errors += 1
        if self._infra or outcome is Outcome.INFRA_FAILURE:
            fact = self._infra.judge(fact, group.registered_at)
        if outcome is Outcome.POKE_TIMEOUT:
            fact = counted(fact, in_a_row, self._overrun_limit)
        if is_last(fact) or matters(fact.outcome, began_at, group.next_deadline, self._moment.trusted):
            self.facts.append(fact)
        elif self.unsettled.pop(group.id, None):
            self.written.add(group.id)  # the next poke found nothing: there is no result to be written

    def _leave(self, report: Report, began_at: Milliseconds) -> None:
        """Leave a group that this process cannot poke to the others, until they have had their turn."""
        self._result.count("not_here", 1)
        fact = self._stranded.leave(report, began_at)
        if fact is not None:
            self.facts.append(fact)
