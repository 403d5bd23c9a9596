"""What is simulated around the real code: time, the outside world that is poked, and processes that can die.

Load, settle, flush, leases, registration, rescue and `cycle.run` itself are the project's own. Not its own are the
threads that poke (one poke after the other here), the child process of the lane apart, and the message broker.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sensorpool.clock import ClockWatch
from sensorpool.errors import Unreachable
from sensorpool.lease import Leases
from sensorpool.load import Memory
from sensorpool.metrics import Metrics
from sensorpool.model import DueGroup, Report, Settled, ShardRange
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.child import Suspect
from sensorpool.poke.classes import Classes
from sensorpool.poke.works import Means, One
from sensorpool.publish import Publisher
from sensorpool.settings import Settings
from sensorpool.store.database import Database
from sensorpool.suspects import Suspects
from sensorpool.watchdog import Watchdog
from sensorpool.worker import Worker
from tests.faults.stateful.actors import Actor, current

if TYPE_CHECKING:
    from tests.faults.stateful.world import World

Result = TypeVar("Result")


class Time:
    """Stands in for the module ``time``: monotonic, and nobody sleeps."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic(self) -> float:
        """Seconds that have really passed."""
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        """Take no time."""


class ConditionSensor:
    """Waits for one of the world's conditions."""

    poke_context_fields: ClassVar[tuple[str, ...]] = ("name",)
    world: ClassVar["World"]

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        """Ask the world."""
        return self.world.observe(self.name)


class SimulatedDatabase(Database):
    """The real one: but a transaction that stands open is let commit before another begins."""

    world: "World"

    def run(self, change: Callable[..., Result], attempts: int = 8) -> Result:
        """Run a change; look at the tables once it has committed."""
        self.world.let_commit()
        self.world.writer = current()
        try:
            result = super().run(change, attempts)
        finally:
            self.world.writer = None
        self.world.look()
        self.world.reach("commit.after")
        return result


class SimulatedLeases(Leases):
    """The real ones: but Redis may be away, and nothing comes from a process that is dead."""

    world: "World"
    dead = False

    def _call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        if self.dead or not self.world.redis_there:
            raise Unreachable("Redis is away")
        return super()._call(function, *arguments, **named)


class SimulatedPublisher(Publisher):
    """Keeps what is published, unless the broker is away."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def publish(self, settled: Sequence[Settled]) -> None:
        """Publish."""
        if not self._world.broker_there:
            raise Unreachable("the broker is away")
        self._world.published.extend((each.id, str(each.state)) for each in settled)

    def nudge(self, shard_range: ShardRange) -> None:
        """Send nothing: a job comes when the machine says so."""

    def drop_abandoned_listeners(self) -> int:
        """There are none."""
        return 0

    def close(self) -> None:
        """There is nothing to close."""


class SimulatedPoker:
    """Stands in for the lanes: pokes one group at each step, and can be frozen before and after."""

    abandoned = 0

    def __init__(self, settings: Settings, world: "World") -> None:
        self.world = world
        self.cache = Cache(settings.groups_cached, Means(Classes(settings.sensors_enabled), Answers(()), {}))
        self.outstanding: dict[int, One] = {}
        self._queue: deque[One] = deque()

    def begin(self) -> "SimulatedPoker":
        """Begin."""
        self.outstanding.clear()
        self._queue.clear()
        return self

    def wants_more(self, op_classpath: str) -> bool:
        """Whether few enough wait to be poked."""
        return len(self._queue) < 64

    def is_held_up(self, seconds: float) -> bool:
        """No poke here takes any time."""
        return False

    def put(self, ones: Sequence[One], ids: Sequence[int]) -> None:
        """Take groups on."""
        self.outstanding.update(zip(ids, ones, strict=True))
        self._queue.extend(ones)

    @property
    def is_over(self) -> bool:
        """Whether none is left."""
        return not self.outstanding

    def step(self) -> list[Report]:
        """Poke one group."""
        if not self._queue:
            return []
        one = self._queue.popleft()
        self.world.reach("poke")
        reports = self.world.poked(one)
        self.world.reach("seen")
        self.outstanding.pop(one.group.id, None)
        return reports

    def withdraw(self) -> list[int]:
        """Give back what was not begun."""
        left = [one.group.id for one in self._queue]
        self._queue.clear()
        self.outstanding.clear()
        return left

    def end(self) -> None:
        """End."""


class SimulatedLaneApart:
    """Stands in for the child process: suspects are poked, and what they saw is handed in, when the machine says so."""

    def __init__(self, world: "World", means: Means) -> None:
        self.suspects: dict[int, Suspect] = {}
        self.seen: list[Report] = []
        self._world, self._means = world, means

    def offer(self, suspects: Iterable[Suspect]) -> None:
        """Take suspects on."""
        self.suspects.update((each.group.id, each) for each in suspects)

    def has(self, group_id: int) -> bool:
        """Whether a group is here."""
        return group_id in self.suspects

    def poke(self) -> None:
        """Poke those that have not been poked."""
        known = {report.group.id for report in self.seen}
        for each in self.suspects.values():
            if each.group.id not in known:
                one = One(each.group, each.op_classpath, each.poke_context, self._means)
                self.seen.extend(self._world.poked(one))


class SimulatedWorker(Worker):
    """A real worker's parts, so that `cycle.run` and `rescue` can be run with it; it dies without a word."""

    def __init__(self, settings: Settings, database: Database, client: Any, world: "World", name: str) -> None:
        self.name = name
        self.world = world
        self.job: Actor | None = None
        self.settings, self.database = settings, database
        self.leases = leases = SimulatedLeases(client, lease_ttl=settings.lease_ttl)
        leases.world = world
        self.publisher = SimulatedPublisher(world)
        self.metrics, self.memory, self.clock = Metrics(), Memory(), ClockWatch()
        self.watchdog = Watchdog(1, enabled=False)
        self.poker: Any = SimulatedPoker(settings, world)
        self.suspects = Suspects(settings, database, leases, self.metrics, self.clock, self.watchdog, self.settle)
        self.lane = SimulatedLaneApart(world, self.poker.cache._means)
        self.suspects._crashing = self.suspects._hanging = self.lane  # type: ignore[assignment]
        self.first_load_ms: int | None = None  # when its ClockWatch first saw the database's clock
        offer = self.suspects.offer

        def noted(shard_range: ShardRange, groups: Mapping[DueGroup, str]) -> int:
            world.excused.update(group.id for group in groups)
            world.rounds[self.name].apart.update(group.id for group in groups)
            return offer(shard_range, groups)

        self.suspects.offer = noted  # type: ignore[method-assign]

    def hand_in_apart(self) -> None:
        """Settle what the lane apart saw."""
        reports, self.lane.seen = self.lane.seen, []
        for report in reports:
            self.lane.suspects.pop(report.group.id, None)
        if reports:
            self.suspects._take_apart(reports)
            self.world.excused.difference_update(report.group.id for report in reports)
