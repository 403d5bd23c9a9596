"""The simulation around the real code: time, the backends that are poked, and processes that can die.

Load, settle, flush, leases, registration, rescue and the job itself are the project's own code. Simulated are the
threads that poke (one poke after the other), the child process of the isolated lane, and the message broker.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.leases.incidents import Incidents
from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Report, Settled, ShardRange
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.child import Suspect
from sensorpool.poke.classes import Classes
from sensorpool.poke.shared_call import SharedCalls
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.poke.watchdog import Watchdog
from sensorpool.publish.outbox import Outbox
from sensorpool.publish.publisher import Publisher
from sensorpool.publish.send_queue import SendQueue
from sensorpool.settle.settler import Settler
from sensorpool.store.database import Database
from sensorpool.store.late_conditions import UsualLandings
from sensorpool.store.pool_id import PoolId
from sensorpool.store.transaction import Transaction
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.context import Worker
from sensorpool.worker.finisher import Batch
from sensorpool.worker.metrics import Metrics
from tests.faults.stateful.actors import Actor, current

if TYPE_CHECKING:
    from tests.faults.stateful.world import World

Result = TypeVar("Result")


class Time:
    """Takes the place of the module ``time``: a monotonic clock, and a sleep that takes no time."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic(self) -> float:
        """Return the seconds that have really passed."""
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


class SimulatedTransaction(Transaction):
    """The real transaction, but an open one is let commit before another one begins."""

    world: "World"

    def run(self, change: Callable[..., Result], /, *args: Any, **named: Any) -> Result:
        """Run a change; look at the tables after its commit."""
        self.world.let_commit()
        self.world.writer = current()
        try:
            result = super().run(change, *args, **named)
        finally:
            self.world.writer = None
        self.world.look()
        self.world.reach("commit.after")
        return result


class SimulatedDatabase(Database):
    """The real database, with simulated transactions."""

    world: "World"

    def transaction(self, **named: Any) -> Transaction:
        """Return a simulated transaction."""
        transaction = SimulatedTransaction(self.engine, **named)
        transaction.world = self.world
        return transaction


class SimulatedRedis(RedisStore):
    """The real store, but Redis may be away, and a dead process sends no command."""

    def __init__(self, client: Any, world: "World") -> None:
        super().__init__(client)
        self.world = world
        self.dead = False

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        if self.dead or not self.world.redis_there:
            raise Unreachable("Redis is away")
        return super().call(function, *arguments, **named)


class SimulatedPublisher(Publisher):
    """Keeps published results, unless the broker is away."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def publish(self, settled: Sequence[Settled]) -> None:
        """Publish."""
        if not self._world.broker_there:
            raise Unreachable("the broker is away")
        self._world.published.extend((each.id, str(each.state)) for each in settled)

    def nudge(self, shard_range: ShardRange) -> None:
        """Send nothing: the machine starts the jobs."""

    def drop_abandoned_listeners(self) -> int:
        """Drop none: there are no listeners."""
        return 0

    def close(self) -> None:
        """Do nothing."""


class SimulatedPoker:
    """Takes the place of the lanes: pokes one group at each step, and can be frozen before and after."""

    abandoned = 0

    def __init__(self, settings: Settings, world: "World") -> None:
        self.world = world
        self.classes = Classes(settings.sensors_enabled)
        self.tools = PokeTools(self.classes, Answers(()), {})
        self.cache = Cache(settings.groups_cached, self.tools)
        self.shared_calls = SharedCalls(self.tools)
        self.outstanding: dict[int, PokeUnit] = {}
        self._queue: deque[PokeUnit] = deque()

    def begin(self, now: object = None) -> "SimulatedPoker":
        """Begin."""
        self.outstanding.clear()
        self._queue.clear()
        return self

    def wants_more(self, op_classpath: str) -> bool:
        """Whether few enough groups wait."""
        return len(self._queue) < 64

    def is_held_up(self, seconds: float) -> bool:
        """Return False: a simulated poke takes no time."""
        return False

    def put(self, ones: Sequence[PokeUnit], ids: Sequence[int]) -> None:
        """Take groups."""
        self.outstanding.update(zip(ids, ones, strict=True))
        self._queue.extend(ones)

    @property
    def is_over(self) -> bool:
        """Whether no group is left."""
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

    def take_undecided(self) -> list[PokeUnit]:
        """Give back nothing: no shared call is made."""
        return []

    def withdraw(self) -> list[PokeUnit]:
        """Give back the units whose poke has not begun."""
        left = list(self._queue)
        self._queue.clear()
        self.outstanding.clear()
        return left

    def end(self) -> None:
        """End."""


class SimulatedIsolatedLane:
    """Takes the place of the isolated lane: the machine says when its groups are poked, and when facts come in."""

    def __init__(self, world: "World", tools: PokeTools) -> None:
        self.suspects: dict[int, Suspect] = {}
        self.seen: list[Report] = []
        self._world, self._tools = world, tools

    def offer(self, suspects: Iterable[Suspect]) -> None:
        """Take groups."""
        self.suspects.update((each.group.id, each) for each in suspects)

    def has(self, group_id: int) -> bool:
        """Whether a group is in the lane."""
        return group_id in self.suspects

    def poke(self) -> None:
        """Poke the groups that have not been poked."""
        known = {report.group.id for report in self.seen}
        for each in self.suspects.values():
            if each.group.id not in known:
                one = PokeUnit(each.group, each.op_classpath, each.poke_context, self._tools)
                self.seen.extend(self._world.poked(one))


class NoThread:
    """Takes the place of the background's thread: the machine says when it looks."""

    def start(self) -> None:
        """Start nothing."""


class DirectQueue(SendQueue):
    """Sends each item before `put` returns."""

    def put(self, act: Callable[[], object], weight: int = 0) -> None:
        """Send."""
        with suppress(Unreachable):
            act()


def direct_outbox(settings: Settings, database: Database, publisher: Publisher) -> Outbox:
    """Make an outbox that sends results at once, and no callbacks."""
    made: Any = Outbox(settings, database, publisher)
    made._results = DirectQueue("results")
    made._callback_queue.stop(0)
    return made  # type: ignore[no-any-return]


class SimulatedWorker(Worker):
    """The parts of a real worker, with which jobs and `rescue` run; it can die at any step."""

    def __init__(self, settings: Settings, database: Database, client: Any, world: "World", name: str) -> None:
        self.name = name
        self.world = world
        self.job: Actor | None = None
        self.settings, self.database = settings, database
        self.usual_landings = UsualLandings(database)
        self.pool_id = PoolId(database)
        self.redis = SimulatedRedis(client, world)
        self.leases = leases = Leases(self.redis, lease_ttl=settings.lease_ttl)
        self.publisher = SimulatedPublisher(world)
        self.outbox = direct_outbox(settings, database, self.publisher)
        self.metrics, self.clock = Metrics(), ClockWatch()
        self.watchdog = Watchdog(1, enabled=False)
        self.incidents = Incidents(leases)
        self.poker: Any = SimulatedPoker(settings, world)
        self.settler = Settler(database, self.outbox.deliver, self._observe, tick_ms=settings.tick_ms)
        self._later_jobs: Any = None  # no group is woken, and none waits for a budget
        self._jobs = self._make_jobs(lambda _: False)
        # a look would depend on the machine's clock
        self._jobs._tools.breakers._looked_at = math.inf
        self.lane = SimulatedIsolatedLane(world, self.poker.cache._tools)
        background: Any = self.background
        background._hanging = background._dying = self.lane
        background._thread = NoThread()
        self.first_load_ms: int | None = None  # when its ClockWatch first saw the database's clock
        isolate = self.background.isolate

        def noted(batch: Batch, units: Sequence[PokeUnit]) -> bool:
            ids = [unit.group.id for unit in units]
            world.excused.update(ids)
            world.rounds[self.name][batch.shard_range].apart.update(ids)
            return isolate(batch, units)

        background.isolate = noted
        jobs: Any = self._jobs
        without_busy = jobs._without_busy

        def passed_by(held: Any, batch: Batch, units: list[PokeUnit]) -> list[PokeUnit]:
            """Note the groups that this job passes by: another process pokes them."""
            kept: list[PokeUnit] = without_busy(held, batch, units)
            busy = {unit.group.id for unit in units} - {unit.group.id for unit in kept}
            world.rounds[self.name][batch.shard_range].apart.update(busy)
            return kept

        jobs._without_busy = passed_by

    def work(self, shard_range: ShardRange, token: str) -> None:
        """Run the job of a range."""
        self._jobs.run(shard_range, token)

    def hand_in_apart(self) -> None:
        """Settle the reports of the isolated lane, and note what is left there."""
        reports, self.lane.seen = self.lane.seen, []
        self.background._reports.extend(reports)
        for report in reports:
            self.lane.suspects.pop(report.group.id, None)
        try:
            self.background._take()
        finally:
            self.world.excused.difference_update(report.group.id for report in reports)
        for shard_range in list(self.background._stale):
            self.background._note(shard_range)
