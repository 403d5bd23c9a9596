"""What a process asks of backends: which of them are away, and what their budgets allow."""

import time
from collections.abc import Callable, Iterable, Sequence

from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.lease import Acquired
from sensorpool.model.budgets import Budgets
from sensorpool.model.values import ShardRange
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker.batch import Batch
from sensorpool.worker.budgeted import Budgeted, Turn, charge
from sensorpool.worker.metrics import Metrics
from sensorpool.worker.outages import BackendsAway, Sifted


class Backends:
    """The backends of one process's pokes. Safe to share between threads.

    :raises Unreachable: by `sift` and `charge`, when Redis does not answer.
    """

    def __init__(self, away: BackendsAway, budgets: Budgets, left: BudgetsLeft, metrics: Metrics) -> None:
        self.away = away
        self.budgets = budgets
        self._left = left
        self._metrics = metrics

    @property
    def has_budget(self) -> Callable[[str], bool] | None:
        """Whether a backend has a budget; None: none has."""
        return self.budgets.covers if self.budgets else None

    def budgeted(self, shard_range: ShardRange, turn: Turn) -> Budgeted:
        """Make the lines of the groups whose backend has a budget."""
        return Budgeted(self.budgets, self._left, str(shard_range), turn)

    def charge(self, shard_range: ShardRange, units: Iterable[PokeUnit]) -> None:
        """Take pokes out of the budgets whatever is left there: they are made at once, in child processes."""
        if self.budgets:
            charge(self.budgets, self._left, str(shard_range), units)

    def sift(self, held: Acquired, batch: Batch, units: Sequence[PokeUnit]) -> Sifted:
        """Return which groups are poked now, and which have to wait for their backend; count these."""
        now = batch.moment.at(time.monotonic())
        sifted = self.away.sift(units, now, set(held.state.left), held.lease.token)
        if sifted.missed:
            batch.result.count("held", sifted.missed.total())
            batch.result.count_each("held_of", sifted.missed)
            self._metrics.held(sifted.missed)
        return sifted
