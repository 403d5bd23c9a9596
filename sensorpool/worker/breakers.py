"""Circuit breakers: the groups of a backend that is away are not poked, but for a poke now and then that asks it.

A backend is away where the pokes of ten groups in a row had no answer from it, or where a poke is told that it wants to
be left alone. All workers know of it by Redis. A group of a short interval misses its poke, and is due again in its
next period: so the pokes of many groups do not come at once when the backend answers again. A group of a longer
interval is due again within a minute of that, at a moment of its own. A passed deadline is always poked, because no
sensor times out without a poke after its deadline.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sensorpool.instrumentation.logs import logger
from sensorpool.leases.outages import MOST, Outages
from sensorpool.model.due import SPREAD
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.outage import HEALED_KEPT, Outage, away, throttled
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds, Report
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker.metrics import Kinds

FEWEST = 10  # groups in a row without an answer, by which their backend counts as away
SHORT = 60_000  # milliseconds: a group with a longer interval does not wait for its next period
_LOOK_EVERY = 1.0  # seconds
_UNANSWERED = frozenset({Outcome.INFRA_FAILURE, Outcome.POKE_TIMEOUT})
_TELLS_NOTHING = frozenset({Outcome.CRASHED, Outcome.CANNOT_POKE, Outcome.UNPOKEABLE})
_MOST = 1_000  # backends whose failures are counted

log = logger(__name__)


class Sifted(NamedTuple):
    """Groups, sifted by whether their backend is asked now.

    :param left: ids of the groups to be poked once their backend answers again, and not in a later period only.
    :param missed: how many groups are not poked, by backend.
    """

    units: list[PokeUnit]
    left: list[int]
    missed: Counter[str]


class Breakers:
    """The circuit breakers of one process. Safe to share between threads.

    :param kinds: returns the class and the backend of groups (`Cache.kinds`).
    :param wait: seconds until the first poke asks a backend that is away.
    :param window: `Settings.infra_failure_window`: after so many seconds, every poke asks again.
    """

    def __init__(self, outages: Outages, kinds: Kinds, *, wait: float, window: float) -> None:
        self._outages = outages
        self._kinds = kinds
        self._wait = wait
        self._window = window
        self._known: dict[str, Outage] = {}
        self._failed: dict[str, set[int]] = {}  # the groups of each backend without an answer since its last one
        self._looked_at = 0.0
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        """Whether a backend is away, or was a short while ago."""
        return bool(self._known)

    def is_away(self, backend: str) -> bool:
        """Whether a backend is away."""
        known = self._known.get(backend)
        return known is not None and known.is_open

    def look(self) -> None:
        """Read what other processes know, once a second at most.

        :raises Unreachable: when Redis does not answer.
        """
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            self._read()

    def sift(self, units: Sequence[PokeUnit], now: Milliseconds, left: Collection[int]) -> Sifted:
        """Return which groups are poked now, and which have to wait for their backend.

        :param now: the database's time.
        :param left: ids of the groups that an earlier job left over.
        :raises Unreachable: when Redis does not answer.
        """
        sifted, here = Sifted([], [], Counter()), time.monotonic()
        for unit in units:
            known, group = self._known.get(unit.backend), unit.group
            if known is None or (group.next_deadline is not None and now >= group.next_deadline):
                sifted.units.append(unit)
            elif not known.is_open:
                if group.id in left and group.poke_interval > SHORT and here < _turn_of(group, known.ask_at):
                    sifted.left.append(group.id)
                else:
                    sifted.units.append(unit)
            elif here - known.since > self._window or self._asks(unit.backend, here):
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
        if not self._failed and not self._known and not any(each.outcome in _UNANSWERED for each in reports):
            return
        kinds = self._kinds([report.group.id for report in reports])
        for report, (op_classpath, backend) in zip(reports, kinds, strict=True):
            if not backend or report.outcome in _TELLS_NOTHING or (report.quiet_for or 0.0) < 0:
                continue
            if report.outcome not in _UNANSWERED:
                self._answered(backend, report.began)
            elif report.outcome is Outcome.INFRA_FAILURE or backend != op_classpath:  # a class that hangs is isolated
                self._unanswered(backend, report)
        for each in many:
            for backend in {backend for _, backend in self._kinds(each.ids)}:
                self._answered(backend, each.began[-1])

    def _read(self) -> None:
        found = self._outages.look()
        with self._lock:
            self._known = {each.backend: each for each in found}

    def _asks(self, backend: str, now: float) -> bool:
        """Whether a poke asks a backend that is away: one does, after each pause."""
        with self._lock:
            known = self._known.get(backend)
            if known is not None and now < known.ask_at:
                return False
            if known is not None:
                self._note(known.asked(now))
            return True

    def _answered(self, backend: str, began: float) -> None:
        with self._lock:
            self._failed.pop(backend, None)
            known = self._known.get(backend)
            if known is None or not known.is_ended_by(began):
                return
            self._read()
            if not self.is_away(backend):  # another process has heard from it
                return
            now = time.monotonic()
            self._note(known.healed(now))
        log.info("a backend answers again", backend=backend, seconds=round(now - known.since, 1))

    def _unanswered(self, backend: str, report: Report) -> None:
        now, cause = time.monotonic(), report.reason or ""
        with self._lock:
            known = self._known.get(backend)
            if report.quiet_for is not None:
                outage = throttled(known, backend, cause, now, self._wait, report.quiet_for)
            elif self.is_away(backend) or not self._is_last_straw(backend, report.group.id):
                return
            else:
                outage = away(known, backend, cause, now, self._wait)
            if outage is known or (known is None and len(self._known) >= MOST):
                return
            is_new = self._note(outage)
        if is_new:
            log.warning(
                "a backend is away; one poke at a time asks whether it answers again",
                backend=backend, why=outage.kind.value, reason=cause, asked_in=round(outage.ask_at - now, 1),
            )  # fmt: skip

    def _is_last_straw(self, backend: str, group_id: int) -> bool:
        """Count a group without an answer; return whether its backend is away."""
        if len(self._failed) >= _MOST:
            self._failed.clear()
        failed = self._failed.setdefault(backend, set())
        failed.add(group_id)
        return len(failed) >= FEWEST

    def _note(self, outage: Outage) -> bool:
        """Note an outage for all workers; return whether none knew of it."""
        self._known[outage.backend] = outage
        self._failed.pop(outage.backend, None)
        return self._outages.write(outage)


def _turn_of(group: DueGroup, forgotten_at: float) -> float:
    """Return when a group is due that waited for its backend: within the span for which that is known as healed."""
    return forgotten_at - HEALED_KEPT + HEALED_KEPT * (group.phase / SPREAD)
