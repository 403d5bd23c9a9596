"""One look at a pool, which several checks share: each server is asked once, and only for what a check wants."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from sensorpool.client.pool_view import PoolView
from sensorpool.config import __version__
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.background_notes import Isolated, Waiting, who_waits
from sensorpool.leases.budgets import BudgetsLeft, BudgetState
from sensorpool.leases.incidents import ChildDeath, Incidents
from sensorpool.leases.lease import Leases
from sensorpool.leases.outages import Outages
from sensorpool.leases.range_state import RangeState
from sensorpool.model.outage import Kind, Outage
from sensorpool.model.terms import LiveWorker
from sensorpool.model.values import LONGEST_SPAN, Milliseconds, ShardRange
from sensorpool.store import inspecting, migrate
from sensorpool.store.database import Database

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report.

    :param said: a sentence, with its mend where something is not in order.
    :param classes: the class paths that a pattern stands for, where the line is about one.
    :param stops: whether nothing is poked as long as this is so.
    """

    subject: str
    level: Level
    said: str
    classes: tuple[str, ...] = ()
    stops: bool = False


class Look:
    """A look at a pool. What is read is kept, and so is the error of a server that does not answer.

    :raises SensorpoolError: by everything that asks a server which cannot be used.
    """

    def __init__(self, pool: PoolView) -> None:
        self.pool = pool
        self._answers: dict[tuple[Any, ...], Any] = {}

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        return self.pool.settings

    @cached_property
    def database_error(self) -> SensorpoolError | None:
        """Why the database cannot be used."""
        return _error_of(lambda: migrate.check(self.pool.database, __version__))

    @cached_property
    def redis_error(self) -> SensorpoolError | None:
        """Why Redis cannot be used."""
        return _error_of(self.pool.leases.store.probe)

    @property
    def database(self) -> Database:
        """The database."""
        if self.database_error is not None:
            raise self.database_error
        return self.pool.database

    def read(self, question: Callable[..., Any], *more: Any) -> Any:
        """Ask the database; what it has answered is not asked again."""
        asked = (question, *more)
        if asked not in self._answers:
            self._answers[asked] = self.database.read(question, *more)
        return self._answers[asked]

    @property
    def leases(self) -> Leases:
        """The leases."""
        if self.redis_error is not None:
            raise self.redis_error
        return self.pool.leases

    @property
    def now(self) -> Milliseconds:
        """The time by the database's clock."""
        now: Milliseconds = self.read(self.database.now)
        return now

    @cached_property
    def workers(self) -> list[LiveWorker]:
        """The live workers; the pool's ranges are theirs from now on."""
        _ = self.leases
        return self.pool.workers()

    @cached_property
    def tick(self) -> float:
        """The longest tick (seconds) of this process, live workers and beat: pokes come at that one."""
        ticks = [worker.tick for worker in self.workers if worker.tick <= LONGEST_SPAN]
        return max(self.settings.tick, self.pool.roster.beat_tick() or 0.0, *ticks)

    @cached_property
    def ranges(self) -> dict[ShardRange, tuple[str | None, RangeState]]:
        """Holder and state of each range."""
        _ = self.workers
        return dict(zip(self.pool.ranges, self.leases.look(self.pool.ranges), strict=True))

    @cached_property
    def isolated(self) -> list[list[Isolated]]:
        """The notes on groups that are poked in children, of each range."""
        _ = self.workers
        return [list(each) for each in self.leases.isolated(self.pool.ranges)]

    @cached_property
    def waiting(self) -> tuple[Waiting, Waiting]:
        """The groups that jobs have left over, and those that wait to be poked in a child."""
        return who_waits([state for _, state in self.ranges.values()], self.isolated)

    @cached_property
    def deaths(self) -> list[ChildDeath]:
        """The deaths of the workers' children in the last minutes, the oldest first."""
        return Incidents(self.leases).deaths()

    @cached_property
    def away(self) -> list[Outage]:
        """The backends that are away."""
        return Outages(self.leases.store).away()

    @cached_property
    def budgets(self) -> list[BudgetState]:
        """The budgets that this process knows by its settings, with what waits for each."""
        budgets = self.settings.budgets
        return BudgetsLeft(self.leases.store).look(budgets) if budgets else []

    @property
    def unpublished(self) -> float | None:
        """For how many seconds the oldest result has waited to be published; None: none waits."""
        oldest = self.read(inspecting.oldest_unpublished)
        return None if oldest is None else (self.now - oldest) / 1000


def _error_of(ask: Callable[[], object]) -> SensorpoolError | None:
    try:
        ask()
    except SensorpoolError as error:
        return error
    return None


def outage_said(outage: Outage) -> str:
    """Say of a backend that it is away, and since when."""
    shown = outage_shown(outage)
    what = "wants to be left alone" if outage.kind == Kind.THROTTLED else "is away"
    return f"backend {shown['backend']} {what}, for {shown['for_s']:.0f} s now"


def outage_shown(outage: Outage) -> dict[str, Any]:
    """Return an outage as plain values."""
    now = time.monotonic()
    return {
        "backend": safe_line(outage.backend, 80),
        "why": str(outage.kind),
        "for_s": round(now - outage.since, 3),
        "asked_in_s": round(max(0.0, outage.ask_at - now), 3),
        "cause": outage.cause,
    }
