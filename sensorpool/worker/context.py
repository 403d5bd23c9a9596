"""What one worker process has to run jobs with: everything is made here, once, after the fork."""

import random
import time
from collections.abc import Callable

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.child_deaths import ChildDeaths
from sensorpool.leases.complaints import Complaints
from sensorpool.leases.keeper import Keeper
from sensorpool.leases.lease import leases_of
from sensorpool.leases.outages import Outages
from sensorpool.leases.roster import Roster
from sensorpool.leases.trouble import Trouble
from sensorpool.leases.wrong_calls import WrongCalls
from sensorpool.model.budgets import Budgets
from sensorpool.model.values import Flushed, Milliseconds, ShardRange
from sensorpool.poke.child import START_LIMIT
from sensorpool.poke.poker import Poker
from sensorpool.poke.watchdog import Watchdog
from sensorpool.publish.late_hook import LateHook
from sensorpool.publish.outbox import Outbox
from sensorpool.publish.publisher import Publisher
from sensorpool.settle.settler import Settler
from sensorpool.store.database import Database
from sensorpool.store.pool_id import PoolId
from sensorpool.worker.adaptive import Adaptive
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.failing_pokes import FailingPokes
from sensorpool.worker.held_claims import HeldClaims
from sensorpool.worker.load import LastLoads
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.outages import BackendsAway
from sensorpool.worker.outside_results import OutsideResults
from sensorpool.worker.passing_on import PassingOn
from sensorpool.worker.slow_pokes import SlowPokes
from sensorpool.worker.suspects import Suspects
from sensorpool.worker.usual_landings import UsualLandings
from sensorpool.worker.wrong_calls import WrongCallsHere

log = logger(__name__)


class Worker:
    """Database, leases, lanes and publisher of one process. Safe to share between the threads that run jobs.

    :param watchdog: whether this process may be ended when a poke stops it (a prefork child may).
    :param is_ending: whether this process was told to end, see `Settler`.
    :param is_struck: whether an error that ends a job is a signal that a poke may have sent.
    :raises SettingsError: when a URL is malformed or a driver is missing.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database | None = None,
        metrics: Metrics | None = None,
        watchdog: bool = False,
        is_ending: Callable[[], bool] = lambda: False,
        is_struck: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self.settings = settings
        self.is_struck = is_struck
        self.database = database or Database.of(settings)
        self.usual_landings = UsualLandings(self.database)
        self.pool_id = PoolId(self.database)
        self.leases = leases_of(settings)
        self.roster = Roster(self.leases)
        self.trouble = Trouble(self.leases)
        self.child_deaths = ChildDeaths(self.leases)
        self.budgets = Budgets(settings.budgets)
        self.budgets_left = BudgetsLeft(self.leases.store, kept=settings.lease_ttl + settings.poke_timeout)
        self.publisher = Publisher(settings, self.pool_id.get)
        self.outbox = Outbox(settings, self.database, self.publisher)
        self.late_hook = LateHook(settings)
        self.metrics = metrics or Metrics()
        self.poker = Poker(settings)
        self.metrics.know(self.poker.cache.kinds)
        self.last_loads = LastLoads()
        self.adaptive = Adaptive(self.database, most=settings.groups_cached) if settings.adaptive else None
        self.clock = ClockWatch()
        self.watchdog = Watchdog(settings.poke_timeout, enabled=watchdog)
        self._began = time.monotonic()
        self._over_at: float | None = None  # the age at which one of Celery's limits was reached
        self._youth = settings.child_max_age * random.uniform(
            0.5, 0.9
        )  # at random, so that not all children are replaced at once
        self.name = ""  # the name of the worker; the token of a job says it
        self.keeper = Keeper(settings.heartbeat, settings.job_time_limit)
        self._passing_on = PassingOn(self.publisher.nudge)
        self._woken_later = PassingOn(self._nudge_if_woken)
        self._complaints = Complaints()
        self.settler = Settler(
            self.database,
            self.outbox.deliver,
            self._observe,
            self.metrics.unsettled,
            is_ending=is_ending,
            tick_ms=settings.tick_ms,
            window=settings.infra_failure_window,
        )
        self._make_outside()

    def _make_outside(self) -> None:
        """Make what pokes outside of jobs."""
        settings, leases = self.settings, self.leases
        kinds = self.poker.cache.kinds
        self.away = BackendsAway(
            Outages(leases.store),
            kinds,
            poke_timeout=settings.poke_timeout,
            wait=settings.tick,
            window=settings.infra_failure_window,
        )
        self.wrong_calls = WrongCallsHere(WrongCalls(leases.store), self.poker.shared_calls)
        self.failing_pokes = FailingPokes(kinds, self.away.is_away)
        claims = HeldClaims(leases.claims, 3 * settings.heartbeat)
        self.outside = OutsideResults(
            settings,
            self.database,
            leases,
            self.metrics,
            self.clock,
            self.settler.settle,
            self.failing_pokes,
            self.away,
        )
        self.slow_pokes = SlowPokes(leases, claims, self.outside, self.watchdog, settings.heartbeat)
        self.suspects = Suspects(settings, self.database, leases, claims, self.outside, self.slow_pokes.has)

    @property
    def is_busy_outside(self) -> bool:
        """Whether pokes go on here outside of jobs."""
        return self.slow_pokes.is_busy or self.suspects.is_busy

    @property
    def is_worn(self) -> bool:
        """Whether this process should be replaced, whatever Celery's limits are."""
        return self.wears_out()

    def wears_out(self, limit: str | None = None) -> bool:
        """Return whether this process should be replaced: threads hang in it, it ran out of something, or is old.

        Pokes outside of jobs end with the process, and begin anew in the next one: so the process waits for them.

        :param limit: which of Celery's limits the process has reached, if any. Then it waits for a while only; suspects
            whose poke has not begun by then are given back, and the process waits for the pokes that have begun.
        """
        settings, abandoned, age = self.settings, self.poker.abandoned, time.monotonic() - self._began
        if self.poker.tools.answers.ran_out:
            log.warning("memory, files or threads ran out in this process; it is replaced")
            return True
        if abandoned >= max(settings.max_abandoned, settings.poke_concurrency) or age > settings.child_max_age:
            return True
        if limit is not None:
            return self._goes_over(limit, age)
        return (abandoned >= settings.max_abandoned or age > self._youth) and not self.is_busy_outside

    def _goes_over(self, limit: str, age: float) -> bool:
        """Whether this process, over a limit, has waited for long enough for what it pokes outside of jobs."""
        patience = START_LIMIT + 3 * self.settings.poke_timeout
        over = age - self._over_at if self._over_at is not None else 0.0
        if self._over_at is None:
            self._over_at = age
        if over >= patience:
            self.suspects.retire()
        if self.is_busy_outside and over < 2 * patience:
            return False
        log.info("this process is replaced", why=limit)
        return True

    def _observe(self, flushed: Flushed) -> None:
        """Count what was settled, and forget the groups that are gone with it."""
        self.poker.cache.drop(flushed.emptied)
        self.metrics.settled(flushed.settled)

    def goes_by(self, token: str) -> None:
        """Take the worker's name from the token of a job."""
        self.name = self.poker.tools.answers.place = token.rpartition("/")[0] or token

    def pass_on(self, shard_range: ShardRange, span: float | None) -> None:
        """Have a range looked at by another process in so many seconds: this one cannot poke all of it."""
        if span is not None and not self.settings.embedded:
            self._passing_on.pass_on(shard_range, span)

    def look_again(self, shard_range: ShardRange, seconds: float) -> None:
        """Have a range looked at again in so many seconds, for groups that wait for a budget."""
        if seconds < self.settings.tick:  # or the tick comes before that
            self._passing_on.pass_on(shard_range, seconds)

    def look_for_woken(self, shard_range: ShardRange, seconds: float) -> None:
        """Have a range looked at again in so many seconds, if groups are woken until then, and so on."""
        self._woken_later.pass_on(shard_range, seconds)

    def _nudge_if_woken(self, shard_range: ShardRange) -> None:
        is_first, again = self.leases.wake_ups.look(shard_range)
        if again:
            self._woken_later.pass_on(shard_range, again)
        if is_first:
            self.publisher.nudge(shard_range)

    def tell_what_is_not_here(self, now: Milliseconds) -> None:
        """Tell operators which classes this process cannot poke, now and then for as long as there are some."""
        if (refusals := self.poker.classes.refusals) or self._complaints.told:
            self._complaints.tell(self.leases, self.name, refusals, now)
            listed = {path for path in refusals if self.poker.classes.is_listed(path)}
            self.metrics.not_here(listed, len(refusals) > len(listed))

    def close(self) -> None:
        """End what is poked apart, send what is in hand, within a bound, and close the connections.

        All threads of the worker end, except threads that still poke: nothing can stop the code of users.
        """
        self._passing_on.close()
        self._woken_later.close()
        self.suspects.close()
        self.slow_pokes.close()
        self.poker.close()
        self.keeper.close()
        self.outbox.close()
        self.late_hook.close()
        self.slow_pokes.give_back()  # as late as can be: what still pokes here goes on until the process ends
        self.database.dispose()
        self.watchdog.close()
