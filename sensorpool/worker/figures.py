"""The figures of the whole pool, as its database and its Redis know them. All workers tell the same.

Each question is one statement or one pipeline. Times are by the servers' clocks, so ages are right on any host.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.background_notes import who_waits
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.incidents import Incidents
from sensorpool.leases.lease import Leases
from sensorpool.leases.outages import Outages
from sensorpool.leases.range_state import MISSED, RangeState, grace
from sensorpool.leases.roster import Roster
from sensorpool.model.values import LONGEST_SPAN, Milliseconds, shard_ranges
from sensorpool.store import callback_rows, inspecting, late_conditions, troubles
from sensorpool.store.database import Database
from sensorpool.worker.metrics import MOST

_NO_LABELS: Mapping[str, str] = {}


class Figure(NamedTuple):
    """A gauge of the whole pool."""

    name: str
    said: str
    value: float
    labels: Mapping[str, str] = _NO_LABELS


class Figures:
    """Asks for the figures. Belongs to one thread.

    :param database: has a short pool of connections of its own.
    :ivar workers: how many workers lived when they were asked for.
    """

    def __init__(self, settings: Settings, database: Database, leases: Leases) -> None:
        self.workers = 1
        self._settings = settings
        self._database = database
        self._leases = leases
        self._roster = Roster(leases)
        self._incidents = Incidents(leases)
        self._outages = Outages(leases.store)
        self._budgets_left = BudgetsLeft(leases.store)
        self._ranges = shard_ranges(settings.shards, settings.shard_code_upper_limit)
        self._began = time.monotonic()

    def ask(self) -> list[Figure]:
        """Return the figures as they are now.

        :raises Unreachable: when the database or Redis does not answer.
        """
        database = self._database
        looked = self._leases.look(self._ranges)
        now = database.read(database.now)
        workers = self._roster.workers()
        self.workers = len(workers)
        known = [self._roster.beat_tick() or 0.0, *(each.tick for each in workers if each.tick <= LONGEST_SPAN)]
        tick = max(self._settings.tick, *known)
        return [
            Figure("sensorpool_workers", "Live workers.", len(workers)),
            Figure("sensorpool_tick_seconds", "The longest tick of workers and beat.", tick),
            *self._of_ranges([state for _, state in looked], now, tick),
            *self._of_waiting(looked),
            *self._of_backends(),
            *self._of_sending(now),
            *self._of_trouble(now, tick),
        ]

    def _of_ranges(self, states: Sequence[RangeState], now: Milliseconds, tick: float) -> Iterator[Figure]:
        """Yield what the ranges' last jobs tell. A range without a known load counts from the start of this process."""
        unknown = time.monotonic() - self._began
        ages = [max(0.0, (now - state.last) / 1000) if state.last else unknown for state in states]
        said = "Seconds since the last tick of the range that is worst off."
        yield Figure("sensorpool_last_tick_seconds", said, max(ages))
        late = sum(age > MISSED * tick for age in ages)
        yield Figure("sensorpool_ranges_late", f"Ranges without a tick for more than {MISSED} ticks.", late)
        yield Figure("sensorpool_ranges", "Ranges.", len(ages))
        if (beat := self._roster.beat_age()) is not None:
            said = "Seconds since beat noted a tick, which it does about every ten seconds."
            yield Figure("sensorpool_beat_seconds", said, beat)

    def _of_waiting(self, looked: Sequence[tuple[str | None, RangeState]]) -> Iterator[Figure]:
        groups, sensing = self._database.read(inspecting.count_waiting)
        yield Figure("sensorpool_groups", "Poke groups that instances wait for.", groups)
        yield Figure("sensorpool_sensing", "Instances that wait.", sensing)
        late = self._database.read(late_conditions.count)
        yield Figure("sensorpool_late", "Poke groups whose condition is later than it usually lands.", late)
        isolated = self._leases.isolated(self._ranges)
        left, set_apart = who_waits([state for _, state in looked], isolated)
        too_long, first = f"have waited for more than {MISSED} intervals", "Seconds that the first of them has waited."
        yield Figure("sensorpool_overdue", f"Groups left over that {too_long}.", left.overdue)
        yield Figure("sensorpool_overdue_seconds", first, left.seconds)
        yield Figure("sensorpool_wait_apart", "Groups that wait to be poked apart, beyond a poke's limit.",
                     set_apart.groups)  # fmt: skip
        yield Figure("sensorpool_wait_apart_seconds", first, set_apart.seconds)
        yield Figure("sensorpool_overdue_apart", f"Groups that wait to be poked apart and {too_long}.",
                     set_apart.overdue)  # fmt: skip
        yield Figure(
            "sensorpool_suspects",
            "Groups that are poked apart.",
            sum(len(each.ids) for notes in isolated for each in notes),
        )
        overrunning = self._database.read(troubles.count_overrunning)
        yield Figure("sensorpool_overrunning", "Groups whose last poke overran its limit.", overrunning)

    def _of_backends(self) -> Iterator[Figure]:
        away = self._outages.away()
        yield Figure("sensorpool_backends_away", "Backends that are away.", len(away))
        budgets = self._budgets_left.look(self._settings.budgets) if self._settings.budgets else []
        for each in budgets:
            yield Figure("sensorpool_over_budget", "Groups that wait for a budget.", each.waiting,
                         {"budget": each.budget.pattern})  # fmt: skip
        for each in budgets:
            said = "Seconds for which the first group has waited for a budget."
            yield Figure("sensorpool_over_budget_seconds", said, each.longest, {"budget": each.budget.pattern})
        now = time.monotonic()
        for outage in sorted(away, key=lambda each: each.since)[:MOST]:
            yield Figure("sensorpool_backend_away_seconds", "Seconds since a backend went away.", now - outage.since,
                         {"backend": safe_line(outage.backend, 80)})  # fmt: skip

    def _of_sending(self, now: Milliseconds) -> Iterator[Figure]:
        oldest = self._database.read(inspecting.oldest_unpublished)
        waited = 0.0 if oldest is None else max(0.0, (now - oldest) / 1000)
        said = "Seconds that the oldest result has waited to be published; 0: none waits."
        yield Figure("sensorpool_outbox_seconds", said, waited)
        backlog = self._database.read(callback_rows.backlog)
        yield Figure("sensorpool_callbacks", "Callbacks that wait to be sent.", sum(e.waiting for e in backlog))
        waited = max((max(0.0, (now - each.oldest) / 1000) for each in backlog), default=0.0)
        said = "Seconds that the oldest callback has waited to be sent; 0: none waits."
        yield Figure("sensorpool_callbacks_seconds", said, waited)

    def _of_trouble(self, now: Milliseconds, tick: float) -> Iterator[Figure]:
        database = self._database
        number = database.read(troubles.count_quarantined)
        yield Figure("sensorpool_quarantined", "Conditions in quarantine: they are refused.", number)
        late, _ = database.read(inspecting.past_deadline, now, MISSED, grace(tick, self._settings.poke_timeout))
        yield Figure("sensorpool_past_deadline", "Groups long past a deadline, whatever the reason.", late)
        failing = self._incidents.of_chores()
        yield Figure("sensorpool_failing_chores", "Chores of rescue that fail round after round.", len(failing))
        deaths = self._incidents.deaths()
        for by, killed in (("itself", False), ("outside", True)):
            count = sum(each.outside is killed for each in deaths)
            said = "Children of workers that died in the last ten minutes, by themselves or by a kill from outside."
            yield Figure("sensorpool_child_deaths", said, count, {"by": by})
