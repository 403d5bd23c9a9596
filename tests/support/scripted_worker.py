"""A worker with scripted pokes: jobs run on SQLite and a Redis of this process, without threads and waits."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pytest

from sensorpool import Pool, Settings
from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import DueGroup, Milliseconds, Report, Settled, ShardRange
from sensorpool.poke.answer import CANNOT, Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.child import Suspect
from sensorpool.poke.classes import Classes
from sensorpool.poke.shared_call import SharedCalls
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.store.database import Database
from sensorpool.worker import context, suspects
from sensorpool.worker.context import Worker
from tests.support.builders import START, classpath
from tests.support.moved_clock import Clock

TICK = 5_000  # milliseconds


class Waits:
    """A sensor that waits for a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        """Never called: pokes are scripted."""
        raise AssertionError


class Trusting:
    """A watch of the clock that sees no jump."""

    def trusts(self, now: Milliseconds, monotonic: float | None = None) -> bool:
        """Trust it."""
        return now >= 0


class SilentPublisher:
    """A publisher that sends nothing."""

    def __init__(self, settings: Settings, pool_id: object = None) -> None:
        self.nudged: list[ShardRange] = []

    def publish(self, settled: Sequence[Settled]) -> None:
        """Do nothing."""

    def nudge(self, shard_range: ShardRange, *, again: bool = False) -> None:
        """Note the range."""
        self.nudged.append(shard_range)

    def close(self) -> None:
        """Hold nothing."""


class ScriptedPoker:
    """Takes the place of a process's lanes: each step reports the scripted outcome of all groups in hand.

    :ivar script: the outcome of a poke, by the group's id; None: the poke does not return.
    :ivar at_step: is called before each step.
    """

    abandoned = 0

    def __init__(self, settings: Settings) -> None:
        self.classes = Classes(settings.sensors_enabled)
        self.tools = PokeTools(self.classes, Answers(settings.infra_failures), {})
        self.cache = Cache(settings.groups_cached, self.tools)
        self.shared_calls = SharedCalls()
        self.script: dict[int, Outcome | None] = {}
        self.at_step: Callable[[], object] = lambda: None
        self.poked: list[int] = []  # in order
        self.room = 1_000_000  # groups that are taken before a step
        self.held_up = self.stuck = self.withdrawn = False
        self.outstanding: dict[int, PokeUnit] = {}

    def begin(self, now: object = None, has_budget: object = None) -> "ScriptedPoker":
        """Begin a job."""
        self.outstanding.clear()
        return self

    def wants_more(self, op_classpath: str) -> bool:
        """Whether there is room."""
        return len(self.outstanding) < self.room

    def is_bulk(self, op_classpath: str) -> bool:
        """Whether one call answers many."""
        return False

    def put(self, units: Sequence[PokeUnit], group_ids: Sequence[int]) -> None:
        """Take groups."""
        self.outstanding.update(zip(group_ids, units, strict=True))

    def step(self) -> list[Report]:
        """Poke the groups in hand."""
        self.at_step()
        reports = []
        for group_id, unit in list(self.outstanding.items()):
            outcome = self.script.get(group_id, Outcome.NOT_LANDED)
            if outcome is not None and group_id in self.outstanding:
                self.poked.append(group_id)
                del self.outstanding[group_id]
                reports.append(report(unit.group, outcome))
        return reports

    def is_held_up(self, seconds: float) -> bool:
        """Whether slow pokes hold the other groups up."""
        return self.held_up

    def is_stuck(self, op_classpath: str, seconds: float) -> bool:
        """Whether the class hangs."""
        return self.stuck

    def take_returned(self) -> list[PokeUnit]:
        """Give back nothing: no shared call is made."""
        return []

    def withdraw(self) -> list[PokeUnit]:
        """Give back nothing: all pokes in hand have begun."""
        self.withdrawn = True
        return []

    def end(self) -> None:
        """End the job."""

    def close(self) -> None:
        """Hold nothing."""


class RecordingLane:
    """Takes the place of an isolated lane: it keeps the offered suspects, and the test hands in their reports."""

    def __init__(
        self,
        settings: Settings,
        take: Callable[[Sequence[Report]], None],
        renew: Callable[[Sequence[int]], None],
        *concurrency: int,
    ) -> None:
        self.in_lane: dict[int, Suspect] = {}
        self.hangs = bool(concurrency)
        self.renew = renew
        self._take = take

    def offer(self, suspects: Iterable[Suspect]) -> int:
        """Take suspects."""
        self.in_lane.update((each.group.id, each) for each in suspects)
        return len(self.in_lane)

    def hand_in(self, group_id: int, outcome: Outcome, reason: str | None = None, *, own_doing: bool = False) -> None:
        """Report a poke of a group."""
        seen = report(self.in_lane.pop(group_id).group, outcome, reason)
        self._take([seen._replace(own_doing=own_doing)])

    def has(self, group_id: int) -> bool:
        """Whether a group is in the lane."""
        return group_id in self.in_lane

    def __len__(self) -> int:
        return len(self.in_lane)

    def retire(self) -> list[int]:
        """Give back all groups: no poke has begun."""
        given_back = list(self.in_lane)
        self.in_lane.clear()
        return given_back

    close = retire


class RecordingSuspects:
    """Takes the place of a process's suspects: it notes the offers of jobs."""

    def __init__(self) -> None:
        self.offered: dict[int, Suspicion | None] = {}
        self.busy: list[int] = []
        self.is_retired = self.is_busy = False

    def offer(
        self,
        shard_range: ShardRange,
        groups: Mapping[DueGroup, Suspicion | None],
        stranded: Collection[int] = frozenset(),
        *,
        due: Milliseconds,
    ) -> list[int]:
        """Note an offer."""
        self.offered.update({group.id: why for group, why in groups.items()})
        return self.busy

    def has(self, group_id: int) -> bool:
        """Whether a group is in hand."""
        return group_id in self.busy

    def mark_again(self, shard_range: ShardRange, known: Collection[int], due: Milliseconds) -> dict[int, Suspicion]:
        """Mark nothing."""
        return {}

    def close(self) -> None:
        """Hold nothing."""


class RecordingSlowPokes:
    """Takes the place of a process's slow pokes: it notes the pokes that jobs leave behind."""

    is_busy = False

    def __init__(self) -> None:
        self.adopted: list[int] = []

    def adopt(
        self,
        poking: Any,
        shard_range: ShardRange,
        group_ids: Sequence[int],
        now: Milliseconds,
        ended: object = None,
    ) -> None:
        """Note the pokes that go on."""
        self.adopted += group_ids

    def has(self, group_id: int) -> bool:
        """Whether a poke of a group goes on."""
        return group_id in self.adopted

    def close(self) -> None:
        """Hold nothing."""

    def give_back(self) -> None:
        """Take the place of the end of a process."""


class Place:
    """A pool on one range, unless it is settled otherwise, its clock, and workers with scripted pokes.

    :ivar leases: the leases on the Redis that all workers share.
    """

    def __init__(self, database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock(START)
        self.client = client
        self._url = str(database.engine.url)
        self._workers: list[Worker] = []
        self._pools: list[Pool] = []
        self.leases = Leases(RedisStore(client), lease_ttl=30)
        self.settings = self.settle_on()
        self.lanes: list[RecordingLane] = []
        monkeypatch.setattr(context, "leases_of", lambda _: self.leases)
        for name, stand_in in (("Publisher", SilentPublisher), ("Poker", ScriptedPoker), ("ClockWatch", Trusting)):
            monkeypatch.setattr(context, name, stand_in)

        def lane(*arguments: Any, **named: Any) -> RecordingLane:
            self.lanes.append(RecordingLane(*arguments, **named))
            return self.lanes[-1]

        monkeypatch.setattr(suspects, "IsolatedLane", lane)

    def settle_on(self, **changed: Any) -> Settings:
        """Set other settings for the pools and workers that are made from now on."""
        self.settings = Settings.load(
            database_url=self._url,
            sensors_enabled=(classpath(Waits),),
            tick=TICK / 1000,
            **{"shards": 1, "poke_interval": TICK / 1000, "timeout": 3_600.0} | changed,
        )
        return self.settings

    @property
    def pool(self) -> Pool:
        """The pool."""
        if not self._pools:
            self._pools.append(Pool(self.settings, clock=self.clock))
        return self._pools[0]

    @property
    def shard_range(self) -> ShardRange:
        """Its one range."""
        return self.pool.ranges[0]

    def register(self, *names: str, **more: Any) -> list[int]:
        """Register instances; return the ids of their groups."""
        asked = [{"sensor": classpath(Waits), "poke_context": {"name": name}, **more} for name in names]
        return [instance.group_id for instance in self.pool.register_many(asked, try_out=False)]

    def states(self) -> list[str]:
        """The states of all instances, in order."""
        with self.pool.database.engine.connect() as connection:
            return [
                str(state) for (state,) in connection.exec_driver_sql("SELECT state FROM sensor_instance ORDER BY id")
            ]

    def reasons(self) -> list[str | None]:
        """The reasons of all instances, in order."""
        with self.pool.database.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT reason FROM sensor_instance ORDER BY id")
            return [reason for (reason,) in rows]

    def worker(self) -> Worker:
        """Make a worker."""
        made = Worker(self.settings, database=Database.of(self.settings, clock=self.clock))
        self._workers.append(made)
        return made

    def close(self) -> None:
        """Close all pools and workers."""
        for worker in self._workers:
            worker.close()
        for pool in self._pools:
            pool.close()


def report(group: DueGroup, outcome: Outcome, reason: str | None = None) -> Report:
    """Return the report of a poke that has just ended."""
    said = {Outcome.CANNOT_POKE: f"here{CANNOT}a.Class is not enabled", Outcome.NOT_LANDED: None}
    seconds = 60.0 if outcome is Outcome.POKE_TIMEOUT else 0.0
    return Report(group, time.monotonic(), outcome, reason or said.get(outcome, f"it {outcome}"), None, seconds)
