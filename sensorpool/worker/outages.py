"""Backends that are away: their groups are not poked, but for one poke at a time that asks whether they answer again.

A backend counts as away where half of its pokes, of ten groups at least within half a minute, end in infrastructure
failures or, where it has a name of its own, overrun their limit; and where one poke is told that it wants to be left
alone. All workers know of it by Redis. A group of a short interval misses its poke, and is due again in its next
period: so the pokes of many groups do not come at once when the backend answers again. A group of a longer interval is
due again within a minute of that, at a moment of its own. A passed deadline is always poked, because no sensor times
out without a poke after its deadline.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from sensorpool.instrumentation.logs import logger
from sensorpool.leases.outages import HEALED_KEPT, Kind, Outages
from sensorpool.model.due import SPREAD
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds, Report
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker.metrics import Kinds

FEWEST = 10  # groups without an answer, before their backend counts as away
SHARE = 0.5  # of the pokes, from which on it does
SPAN = 30.0  # seconds in which pokes are counted together
LONGEST_PAUSE = 30.0  # seconds between two pokes that ask a backend that is away
SHORT = 60_000  # milliseconds: a group with a longer interval does not wait for its next period
_LOOK_EVERY = 1.0  # seconds
_TOLD_EVERY = 60.0  # seconds between two lines of log for one backend
_JITTER = 0.25  # of a quiet span, at most, is added to it
_UNANSWERED = frozenset({Outcome.INFRA_FAILURE, Outcome.POKE_TIMEOUT})
_TELLS_NOTHING = frozenset({Outcome.CRASHED, Outcome.CANNOT_POKE, Outcome.UNPOKEABLE})
_MOST = 1_000  # backends that are counted

log = logger(__name__)


@dataclass(slots=True)
class _Known:
    """An outage as this process knows it; times are of its monotonic clock."""

    kind: Kind
    until: float  # when one poke asks the backend; of a healed one, when it is forgotten
    since: float


@dataclass(slots=True)
class _Counted:
    """The pokes of one backend since a moment."""

    since: float
    unanswered: int = 0
    answered: int = 0
    groups: set[int] = field(default_factory=set)  # some that had no answer

    @property
    def is_away(self) -> bool:
        return len(self.groups) >= FEWEST and self.unanswered >= SHARE * (self.unanswered + self.answered)


class Sifted(NamedTuple):
    """Groups, sifted by whether their backend is asked now.

    :param left: ids of the groups to be poked once their backend answers again, and not in a later period only.
    :param missed: how many others miss their poke.
    """

    units: list[PokeUnit]
    left: list[int]
    missed: Counter[str]  # how many groups are not poked, by backend


class BackendsAway:
    """What one process knows of backends that are away. Safe to share between threads.

    :param kinds: returns the class and the backend of groups (`Cache.kinds`).
    :param poke_timeout: seconds; a poke that asks is lost after three times as long.
    :param wait: seconds until the first poke asks a backend that is away.
    :param window: `Settings.infra_failure_window`: after so many seconds, every poke asks again.
    """

    def __init__(self, outages: Outages, kinds: Kinds, *, poke_timeout: float, wait: float, window: float) -> None:
        self._outages = outages
        self._kinds = kinds
        self._turn_kept = 3 * poke_timeout
        self._wait = min(wait, LONGEST_PAUSE)
        self._window = window
        self._known: dict[str, _Known] = {}
        self._counted: dict[str, _Counted] = {}
        self._asking: dict[int, str] = {}  # the backend of each group whose poke asks
        self._told: dict[str, float] = {}
        self._looked_at = 0.0
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether a backend is away, or was a short while ago."""
        return bool(self._known)

    def is_away(self, backend: str) -> bool:
        """Whether a backend is away."""
        known = self._known.get(backend)
        return known is not None and known.kind is not Kind.HEALED

    def look(self) -> None:
        """Ask Redis what other processes know, once a second at most.

        :raises Unreachable: when Redis does not answer.
        """
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = now
        found = self._outages.look()
        with self._lock:
            self._known = {each.backend: _Known(each.kind, now + each.left, now - each.lasted) for each in found}

    def sift(self, units: Sequence[PokeUnit], now: Milliseconds, left: Collection[int], token: str) -> Sifted:
        """Return which groups are poked now, and which have to wait for their backend.

        :param now: the database's time.
        :param left: ids of the groups that an earlier job left over.
        :param token: names the job.
        :raises Unreachable: when Redis does not answer.
        """
        sifted, here = Sifted([], [], Counter()), time.monotonic()
        for unit in units:
            known, group = self._known.get(unit.backend), unit.group
            if known is None or (group.next_deadline is not None and now >= group.next_deadline):
                sifted.units.append(unit)
            elif known.kind is Kind.HEALED:
                if group.id in left and group.poke_interval > SHORT and here < _turn_of(group, known.until):
                    sifted.left.append(group.id)
                else:
                    sifted.units.append(unit)
            elif here - known.since > self._window or self._has_turn(unit, known, token, here):
                sifted.units.append(unit)
            else:
                sifted.missed[unit.backend] += 1
                if group.poke_interval > SHORT:
                    sifted.left.append(group.id)
        return sifted

    def take(self, reports: Sequence[Report], many: Sequence[NotLanded] = ()) -> None:
        """Take in what pokes saw: backends go away, and answer again.

        :raises Unreachable: when Redis does not answer.
        """
        if not self._counted and not self._known and not any(each.outcome in _UNANSWERED for each in reports):
            return
        group_ids = [report.group.id for report in reports]
        now, kinds = time.monotonic(), self._kinds(group_ids)
        answers: dict[str, float] = {}  # when the last poke began that each backend answered
        told: dict[str, Report] = {}  # the first poke of each backend that has no answer
        quiet: dict[str, float] = {}
        for report, (op_classpath, backend) in zip(reports, kinds, strict=True):
            if not backend or report.outcome in _TELLS_NOTHING or (report.quiet_for or 0.0) < 0:
                continue
            if report.outcome not in _UNANSWERED:
                answers[backend] = max(answers.get(backend, 0.0), report.began)
                self._count(backend, now, answered=1)
            elif report.outcome is Outcome.INFRA_FAILURE or backend != op_classpath:  # a class that hangs is set apart
                told.setdefault(backend, report)
                self._count(backend, now, unanswered=report.group.id)
                if report.quiet_for is not None:
                    quiet[backend] = max(quiet.get(backend, 0.0), report.quiet_for)
        for each in many:
            for (_, backend), number in Counter(self._kinds(each.ids)).items():
                if backend:
                    answers[backend] = max(answers.get(backend, 0.0), each.began[-1])
                    self._count(backend, now, answered=number)
        ended = chain(group_ids, *(each.ids for each in many)) if self._asking else ()
        asked = {name for group_id in ended if (name := self._asking.pop(group_id, None)) is not None}
        self._judge(now, answers, told, quiet, asked)

    def forget(self, group_ids: Collection[int]) -> None:
        """Forget of groups that their pokes ask a backend: they were not begun."""
        if self._asking:
            with self._lock:
                for group_id in group_ids:
                    self._asking.pop(group_id, None)

    def _count(self, backend: str, now: float, *, answered: int = 0, unanswered: int = 0) -> None:
        """Count pokes that were answered, or the one of a group that was not."""
        with self._lock:
            counted = self._counted.get(backend)
            if counted is None or now - counted.since > SPAN:
                if counted is not None and not unanswered:
                    del self._counted[backend]  # it answered throughout: it is no longer watched
                    return
                if not unanswered or (counted is None and len(self._counted) >= _MOST):
                    return
                counted = self._counted[backend] = _Counted(now)
            counted.answered += answered
            if unanswered:
                counted.unanswered += 1
                if len(counted.groups) < FEWEST:
                    counted.groups.add(unanswered)

    def _judge(
        self, now: float, answers: dict[str, float], told: dict[str, Report], quiet: dict[str, float], asked: set[str]
    ) -> None:
        """Begin and end outages."""
        for backend, began in answers.items():
            known = self._known.get(backend)
            if known is None or known.kind is Kind.HEALED or backend in told:
                continue
            # a backend that wants to be left alone may have answered pokes that were on their way
            if backend in asked or began > (known.until if known.kind is Kind.THROTTLED else known.since):
                self._end(backend, now)
        for backend, report in told.items():
            if backend in asked:
                left = self._outages.failed(backend, LONGEST_PAUSE)
                with self._lock:
                    if (known := self._known.get(backend)) is not None and known.kind is not Kind.HEALED:
                        known.until = now + left
            if backend in quiet:
                span = quiet[backend] * (1 + random.uniform(0, _JITTER))
                self._begin(backend, Kind.THROTTLED, report, now, span)
            elif not self.is_away(backend) and (counted := self._counted.get(backend)) is not None and counted.is_away:
                self._begin(backend, Kind.AWAY, report, now)

    def _begin(self, backend: str, kind: Kind, report: Report, now: float, quiet: float = 0.0) -> None:
        begun = self._outages.begin(backend, kind, report.reason or "", wait=self._wait, quiet=quiet)
        with self._lock:
            known = self._known.get(backend)
            since = now if known is None or known.kind is Kind.HEALED else known.since
            self._known[backend] = _Known(kind, now + begun.left, since)
            self._counted.pop(backend, None)
        if begun.is_new and now - self._told.get(backend, -_TOLD_EVERY) >= _TOLD_EVERY:
            if len(self._told) >= _MOST:
                self._told.clear()
            self._told[backend] = now
            log.warning(
                "a backend is away; one poke at a time asks whether it answers again",
                backend=backend, why=kind.value, reason=report.reason, asked_in=round(begun.left, 1),
            )  # fmt: skip

    def _end(self, backend: str, now: float) -> None:
        lasted = self._outages.answered(backend)
        with self._lock:
            self._known[backend] = _Known(Kind.HEALED, now + HEALED_KEPT, now)
            self._counted.pop(backend, None)
        if lasted is not None:
            log.info("a backend answers again", backend=backend, seconds=round(lasted, 1))

    def _has_turn(self, unit: PokeUnit, known: _Known, token: str, now: float) -> bool:
        """Whether this group's poke asks the backend; it may have been sifted before."""
        if self._asking.get(unit.group.id) == unit.backend:
            return True
        return now >= known.until and self._asks(unit, token, now)

    def _asks(self, unit: PokeUnit, token: str, now: float) -> bool:
        """Whether this group's poke asks the backend: one at a time does."""
        left = self._outages.take_turn(unit.backend, token, self._turn_kept)
        with self._lock:
            known = self._known.get(unit.backend)
            if left is None:  # another process has heard from it
                self._known[unit.backend] = _Known(Kind.HEALED, now + HEALED_KEPT, now)
                return True
            if known is not None:
                known.until = now + (left or self._turn_kept)
            if left:
                return False
            if len(self._asking) >= _MOST:  # their pokes were never reported
                self._asking.clear()
            self._asking[unit.group.id] = unit.backend
            return True


def _turn_of(group: DueGroup, forgotten_at: float) -> float:
    """Return when a group is due that waited for its backend: within the span for which that is known as healed."""
    return forgotten_at - HEALED_KEPT + HEALED_KEPT * (group.phase / SPREAD)
