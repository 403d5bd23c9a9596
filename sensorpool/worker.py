"""What one worker process has to run jobs with: everything is made here, once, after the fork."""

from collections.abc import Sequence

from sensorpool.clock import ClockWatch
from sensorpool.failpoint import failpoint
from sensorpool.flush import GROUPS, flush
from sensorpool.lease import Leases, connect
from sensorpool.load import Memory
from sensorpool.metrics import Metrics
from sensorpool.model import Fact
from sensorpool.poke.poker import Poker
from sensorpool.publish import Publisher, deliver
from sensorpool.settings import Settings
from sensorpool.store.database import Database
from sensorpool.suspects import Suspects
from sensorpool.watchdog import Watchdog


class Worker:
    """Database, leases, lanes and publisher of one process. Safe to share between the threads that run jobs.

    :param watchdog: whether this process may be ended when a poke freezes it whole (a prefork child may).
    :raises SettingsError: when a URL is malformed or a driver is missing.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database | None = None,
        metrics: Metrics | None = None,
        watchdog: bool = False,
    ) -> None:
        self.settings = settings
        self.database = database or Database(settings.database_url, schema=settings.database_schema)
        self.leases = Leases(connect(settings.redis_url), lease_ttl=settings.lease_ttl, url=settings.redis_url)
        self.publisher = Publisher(settings)
        self.metrics = metrics or Metrics()
        self.poker = Poker(settings)
        self.memory = Memory()
        self.clock = ClockWatch()
        self.watchdog = Watchdog(settings.poke_timeout + 0.5, enabled=watchdog)
        self.suspects = Suspects(
            settings, self.database, self.leases, self.metrics, self.clock, self.watchdog, self.settle
        )

    @property
    def is_worn(self) -> bool:
        """Whether so many threads hang in this process that it should be replaced."""
        return self.poker.abandoned >= self.settings.max_abandoned

    def settle(self, facts: Sequence[Fact], timeouts: bool = True) -> int:
        """Settle facts, and publish what was settled; return how many instances ended.

        :raises Unreachable: when the database does not answer; what was not settled is due again.
        """
        ended = 0
        for start in range(0, len(facts), GROUPS):
            some = facts[start : start + GROUPS]
            for flushed in flush(self.database, some, tick_ms=self.settings.tick_ms, timeouts=timeouts):
                failpoint("settle.after_commit")
                self.poker.cache.drop(flushed.emptied)
                ended += len(flushed.settled)
                self.metrics.settled(flushed.settled)
                deliver(self.database, self.publisher, flushed)
        return ended

    def close(self) -> None:
        """Close the connections."""
        self.publisher.close()
        self.database.dispose()
