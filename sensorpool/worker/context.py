"""One worker process: everything that its jobs and chores work with is made here, once, after the fork."""

import random
import time
from collections.abc import Callable

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.incidents import Incidents
from sensorpool.leases.lease import leases_of
from sensorpool.leases.outages import Outages
from sensorpool.leases.roster import Roster
from sensorpool.model.budgets import Budgets
from sensorpool.model.values import Flushed, JobResult, ShardRange
from sensorpool.poke.child import START_LIMIT
from sensorpool.poke.poker import Poker
from sensorpool.poke.watchdog import Watchdog
from sensorpool.publish.outbox import Outbox
from sensorpool.publish.publisher import Publisher
from sensorpool.settle.settler import Settler
from sensorpool.store.database import Database
from sensorpool.store.late_conditions import UsualLandings
from sensorpool.store.pool_id import PoolId
from sensorpool.worker.background import Background
from sensorpool.worker.breakers import Breakers
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.dispatch import Tools
from sensorpool.worker.failing_pokes import FailingPokes
from sensorpool.worker.finisher import Finisher
from sensorpool.worker.job import Jobs
from sensorpool.worker.later_jobs import LaterJobs
from sensorpool.worker.metrics import Metrics

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
        self.database = database or Database.of(settings)
        self.usual_landings = UsualLandings(self.database)
        self.pool_id = PoolId(self.database)
        self.leases = leases_of(settings)
        self.roster = Roster(self.leases)
        self.incidents = Incidents(self.leases)
        self.publisher = Publisher(settings, self.pool_id.get)
        self.outbox = Outbox(settings, self.database, self.publisher)
        self.metrics = metrics or Metrics()
        self.poker = Poker(settings)
        self.metrics.know(self.poker.cache.kinds)
        self.watchdog = Watchdog(settings.poke_timeout, enabled=watchdog)
        self.clock = ClockWatch()
        self.settler = Settler(
            self.database,
            self.outbox.deliver,
            self._observe,
            lambda groups: self.metrics.count("unsettled", groups),
            is_ending=is_ending,
            tick_ms=settings.tick_ms,
        )
        self._began = time.monotonic()
        self._over_at: float | None = None  # the age at which one of Celery's limits was reached
        # at random, so that not all children are replaced at once
        self._youth = settings.child_max_age * random.uniform(0.5, 0.9)
        self._later_jobs = LaterJobs(self.leases.waking, self.publisher.nudge, settings.tick)
        self._jobs = self._make_jobs(is_struck)

    def _make_jobs(self, is_struck: Callable[[BaseException], bool]) -> Jobs:
        """Make what a job works with; each part gets what it needs."""
        settings, kinds, clock = self.settings, self.poker.cache.kinds, self.clock
        breakers = Breakers(Outages(self.leases.store), kinds, wait=settings.tick, window=settings.infra_failure_window)
        budgets_left = BudgetsLeft(
            self.leases.store, kept=settings.lease_ttl + settings.poke_timeout, tick=settings.tick
        )
        failing_pokes = FailingPokes(kinds, breakers.is_away)
        finisher = Finisher(
            settings, self.database, self.settler, self.poker.cache, self.metrics, breakers, failing_pokes
        )
        self.background = background = Background(
            settings, self.database, self.leases, clock, finisher, self.watchdog.rest
        )
        tools = Tools(
            settings, self.database, self.poker, self.watchdog, breakers, Budgets(settings.budgets),
            budgets_left, finisher, background, self.metrics,
        )  # fmt: skip
        return Jobs(
            tools, self.leases, clock, self.pool_id, self.metrics, self._later_jobs, self.usual_landings, is_struck
        )

    def run_job(self, shard_range: ShardRange, token: str) -> JobResult:
        """Run the job of a range: see `Jobs.run`.

        :param token: names this job, and begins with the name of its worker.
        :raises Unreachable: when the database or Redis does not answer.
        """
        self.poker.tools.answers.place = token.rpartition("/")[0] or token
        result = self._jobs.run(shard_range, token)
        refusals = self.poker.classes.refusals
        listed = {path for path in refusals if self.poker.classes.is_listed(path)}
        self.metrics.not_here(listed, len(refusals) > len(listed))
        return result

    def wears_out(self, limit: str | None = None) -> bool:
        """Return whether this process should be replaced: threads hang in it, it ran out of something, or is old.

        Pokes outside of jobs end with the process, and begin anew in the next one: so the process waits for them.

        :param limit: which of Celery's limits the process has reached, if any. Then it waits for a while only; groups
            whose poke in a child has not begun by then are given back, and the process waits for the pokes that have.
        """
        settings, abandoned, age = self.settings, self.poker.abandoned, time.monotonic() - self._began
        if self.poker.tools.answers.ran_out:
            log.warning("memory, files or threads ran out in this process; it is replaced")
            return True
        if abandoned >= max(settings.max_abandoned, settings.poke_concurrency) or age > settings.child_max_age:
            return True
        if limit is not None:
            return self._goes_over(limit, age)
        return (abandoned >= settings.max_abandoned or age > self._youth) and not self.background.is_busy

    def _goes_over(self, limit: str, age: float) -> bool:
        """Whether this process, over a limit, has waited for long enough for what it pokes outside of jobs."""
        patience = START_LIMIT + 3 * self.settings.poke_timeout
        self._over_at = self._over_at or age
        over = age - self._over_at
        if over >= patience:
            self.background.retire()
        if self.background.is_busy and over < 2 * patience:
            return False
        log.info("this process is replaced", why=limit)
        return True

    def _observe(self, flushed: Flushed) -> None:
        """Count what was settled, and forget the groups that are gone with it."""
        self.poker.cache.drop(flushed.emptied)
        for each in flushed.settled:
            self.metrics.count("settled", 1, each.state.value, each.ending.value)

    def close(self) -> None:
        """End what is poked in children, send what is in hand, within a bound, and close the connections.

        All threads of the worker end, except threads that still poke: nothing can stop the code of users.
        """
        self._later_jobs.close()
        self.background.close()
        self.poker.close()
        self.outbox.close()
        self.background.give_back()  # as late as can be: what still pokes here goes on until the process ends
        self.database.dispose()
        self.watchdog.close()
