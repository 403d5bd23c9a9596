"""The jobs that a job asks for, besides those of the ticks: for a budget, and for groups that were woken."""

from sensorpool.leases.lease import Leases
from sensorpool.leases.wake_ups import GAP
from sensorpool.model.values import ShardRange
from sensorpool.publish.publisher import Publisher
from sensorpool.worker.later_jobs import LaterJobs


class Hints:
    """The further jobs of one process. Safe to share between threads.

    :param tick: seconds.
    """

    def __init__(self, leases: Leases, publisher: Publisher, tick: float) -> None:
        self._leases = leases
        self._publisher = publisher
        self._tick = tick
        self._for_budgets = LaterJobs(publisher.nudge)
        self._for_woken = LaterJobs(self._nudge_if_woken)

    def look_again(self, shard_range: ShardRange, seconds: float) -> None:
        """Have a range looked at again in so many seconds, for groups that wait for a budget."""
        if seconds < self._tick:  # or the tick comes before that
            self._for_budgets.send_in(shard_range, seconds)

    def look_for_woken(self, shard_range: ShardRange) -> None:
        """Have a range looked at again after the gap of wake-ups, if groups are woken until then, and so on."""
        self._for_woken.send_in(shard_range, GAP)

    def close(self) -> None:
        """Send no more."""
        self._for_budgets.close()
        self._for_woken.close()

    def _nudge_if_woken(self, shard_range: ShardRange) -> None:
        is_first, again = self._leases.wake_ups.look(shard_range)
        if again:
            self._for_woken.send_in(shard_range, again)
        if is_first:
            self._publisher.nudge(shard_range)
