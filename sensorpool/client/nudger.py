"""Nudges: a pool's workers are told what to poke before their next tick. A lost nudge costs a tick."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cached_property

from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Refused
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.leases.roster import Roster
from sensorpool.model.values import Registered, ShardRange
from sensorpool.publish.outbox import Outbox
from sensorpool.store.conditions import Woken

_PATIENCE = 2.0  # seconds that a registration waits for Redis, with a hint that only saves time

log = logger(__name__)


class Nudger:
    """Nudges the workers of a pool.

    :param outbox: sends the jobs.
    """

    def __init__(self, pool: PoolView, outbox: Outbox) -> None:
        self._pool = pool
        self._outbox = outbox

    @cached_property
    def _leases(self) -> Leases:
        return leases_of(self._pool.settings, patience=_PATIENCE)

    def nudge(self, opened: Sequence[Registered], *, is_late: bool) -> str | None:
        """Send jobs for the ranges of new groups.

        :param opened: an instance of each of them.
        :param is_late: a load that is over may have missed them.
        :returns: why no worker will ever look at them, or None.
        """
        if not opened:
            return None
        pool = self._pool
        try:
            workers = Roster(self._leases).workers()
            pool.learn_ranges(workers)
            raised = self._raise_flags(opened, is_late)
            ours = pool.find_own(workers)
            if ours and all(worker.terms.pool_id != ours for worker in workers):
                return pool.disagreements(workers)[0]
            for shard_range in raised:
                self._outbox.nudge(shard_range)
        except Exception as error:  # the instance is registered: no later error may hide that
            log.warning("new conditions wait for their tick", error=str(error))
        return None

    def _raise_flags(self, opened: Sequence[Registered], is_late: bool) -> list[ShardRange]:
        """Raise the flags of the ranges of new groups; return those whose flag was down."""
        late: dict[ShardRange, list[int]] = defaultdict(list)
        for instance in opened:
            found = late[self._pool.range_of(instance.shardcode)]
            if is_late:
                found.append(instance.group_id)
        return self._leases.waking.raise_flags(late)

    def poke_soon(self, groups: Collection[Woken]) -> int:
        """Have groups poked at once; return how many are not, because too many wait already.

        :raises Refused: when the leases are in the memory of another process.
        :raises Unreachable: when the database or Redis does not answer.
        """
        if self._pool.settings.embedded:
            raise Refused(
                "`sensorpool standalone` takes no orders from other processes: name a Redis in SENSORPOOL_REDIS_URL"
            )
        if not groups:
            return 0
        self._pool.workers()  # they say which ranges there are
        by_range: dict[ShardRange, list[int]] = defaultdict(list)
        for each in groups:
            by_range[self._pool.range_of(each.shardcode)].append(each.id)
        sent, dropped = self._pool.leases.waking.wake(by_range)
        for shard_range in sent:
            self._outbox.nudge(shard_range)
        if dropped:
            log.warning("there are too many wake-ups: some conditions are poked in their turn", dropped=dropped)
        return dropped
