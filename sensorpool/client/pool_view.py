"""A pool as one looks at it: its settings, its database, its Redis and its live workers.

Neither a broker nor a poke is imported, so that a command that only looks starts quickly.
"""

from collections.abc import Callable, Sequence
from typing import Self

from sensorpool.config.settings import Settings
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.leases.roster import Roster
from sensorpool.leases.standalone_files import take_up
from sensorpool.model.terms import LiveWorker, Terms, disagreements
from sensorpool.model.values import Milliseconds, ShardRange, range_of, shard_ranges
from sensorpool.store.database import Database
from sensorpool.store.pool_id import PoolId


class PoolView:
    """A pool, by its settings, to look at. Nothing is connected before its first use.

    :param settings: default: the settings of the environment.
    :param clock: replaces the database's clock in tests: returns milliseconds.
    :raises SettingsError: when a setting is wrong.
    """

    def __init__(self, settings: Settings | None = None, *, clock: Callable[[], Milliseconds] | None = None) -> None:
        self.settings = settings or Settings.load()
        self.database = Database.of(self.settings, clock=clock)
        self.ranges = shard_ranges(self.settings.shards, self.settings.shard_code_upper_limit)
        self.pool_id = PoolId(self.database)
        self._leases: Leases | None = None
        self._roster: Roster | None = None

    @classmethod
    def to_look_at(cls, settings: Settings | None = None) -> Self:
        """Return a pool with the state that `sensorpool standalone` shows of itself, read in."""
        settings = settings or Settings.load()
        take_up(settings)
        return cls(settings)

    @property
    def leases(self) -> Leases:
        """The leases; they connect at their first use."""
        if self._leases is None:
            self._leases = leases_of(self.settings)
        return self._leases

    def range_of(self, shardcode: int) -> ShardRange:
        """Return the range of a shardcode, also of a shardcode that rescue will fold (the limit was lowered)."""
        return range_of(shardcode, self.ranges)

    def close(self) -> None:
        """Close the connections."""
        self.database.dispose()

    @property
    def roster(self) -> Roster:
        """The roster of live workers."""
        if self._roster is None:
            self._roster = Roster(self.leases)
        return self._roster

    def workers(self) -> list[LiveWorker]:
        """Return the live workers on our Redis; from now on ``ranges`` are the ranges of these workers.

        :raises Unreachable: when Redis does not answer.
        """
        workers = self.roster.workers()
        self.find_own(workers)
        self.learn_ranges(workers)
        return workers

    def disagreements(self, workers: Sequence[LiveWorker]) -> list[str]:
        """Return a line for each difference between live workers and our settings."""
        return disagreements(self._terms, workers) if self.pool_id.get() else []

    @property
    def _terms(self) -> Terms:
        return Terms(self.pool_id.get() or "", self.settings.shards, self.settings.shard_code_upper_limit)

    def find_own(self, workers: Sequence[LiveWorker]) -> str | None:
        """Return the id of our pool, read again if no worker has it: a new epoch, or tables that were made anew."""
        ours = self.pool_id.get() if workers else None
        if ours and all(worker.terms.pool_id != ours for worker in workers):
            ours = self.pool_id.look_again()
        return ours

    def learn_ranges(self, workers: Sequence[LiveWorker]) -> None:
        """Take over the ranges of the workers: only their ranges are poked."""
        ours = [worker.terms.ranges for worker in workers if worker.terms.pool_id == self.pool_id.get()]
        if ours and self.ranges not in ours:
            self.ranges = ours[0]
