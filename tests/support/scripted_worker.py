"""A worker with scripted pokes: jobs run on SQLite and a Redis of this process."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Outcome
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import DueGroup, Milliseconds, Report, Settled, ShardRange
from sensorpool.poke.answer import CANNOT, Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.child import Suspect
from sensorpool.poke.classes import Classes
from sensorpool.poke.shared_call import SharedCalls
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import troubles
from sensorpool.store.database import Database
from sensorpool.worker import background, context
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

    :ivar script: the outcome of a poke, by the group's id; None: the poke does not return for now.
    :ivar at_step: is called before each step.
    """

    abandoned = 0

    def __init__(self, settings: Settings) -> None:
        self.classes = Classes(settings.sensors_enabled)
        self.tools = PokeTools(self.classes, Answers(settings.infra_failures), {})
        self.cache = Cache(settings.groups_cached, self.tools)
        self.shared_calls = SharedCalls(self.tools)
        self.script: dict[int, Outcome | None] = {}
        self.at_step: Callable[[], object] = lambda: None
        self.poked: list[int] = []  # in order
        self.room = 1_000_000  # groups that are taken before a step
        self.held_up = False

    def begin(self, now: object = None) -> "ScriptedPoking":
        """Begin a job."""
        return ScriptedPoking(self)

    def close(self) -> None:
        """Hold nothing."""


class ScriptedPoking:
    """The poking of one job.

    :ivar lost: whether an error has lost the groups in hand between the hand-over and the lanes.
    :ivar undecided: groups that a slow shared call leaves to pokes of their own.
    """

    def __init__(self, poker: ScriptedPoker) -> None:
        self._poker = poker
        self.outstanding: dict[int, PokeUnit] = {}
        self.lost = self.ended = False
        self.undecided: list[int] = []

    def wants_more(self, op_classpath: str) -> bool:
        """Whether there is room."""
        return len(self.outstanding) < self._poker.room

    def put(self, units: Sequence[PokeUnit], group_ids: Sequence[int]) -> None:
        """Take groups."""
        self.outstanding.update(zip(group_ids, units, strict=True))

    def step(self) -> list[Report]:
        """Poke the groups in hand."""
        self._poker.at_step()
        reports = []
        for group_id, unit in list(self.outstanding.items()):
            if (outcome := self._outcome(group_id)) is not None:
                self._poker.poked.append(group_id)
                del self.outstanding[group_id]
                reports.append(report(unit.group, outcome))
        return reports

    def is_held_up(self, seconds: float) -> bool:
        """Whether slow pokes hold the other groups up."""
        return self._poker.held_up

    def take_undecided(self) -> list[PokeUnit]:
        """Give back what shared calls leave undecided."""
        undecided, self.undecided = self.undecided, []
        return [self.outstanding.pop(group_id) for group_id in undecided]

    def withdraw(self) -> list[PokeUnit]:
        """Give back the groups whose poke has not begun; those that do not return have."""
        waiting = [group_id for group_id in self.outstanding if self._outcome(group_id) is not None]
        return [self.outstanding.pop(group_id) for group_id in waiting]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is poked."""
        return self.lost or not self.outstanding

    @property
    def is_over(self) -> bool:
        """Whether every group was reported."""
        return not self.outstanding

    def forget_lost(self) -> list[int]:
        """Forget the groups that were lost."""
        lost = list(self.outstanding)
        self.outstanding.clear()
        return lost

    def end(self) -> None:
        """End the job."""
        self.ended = True

    def _outcome(self, group_id: int) -> Outcome | None:
        return self._poker.script.get(group_id, Outcome.NOT_LANDED)


class RecordingLane:
    """Takes the place of an isolated lane: it keeps the offered groups, and the test hands in their reports."""

    def __init__(
        self, settings: Settings, report: Callable[[Sequence[Report]], object], width: int | None = None
    ) -> None:
        self.in_lane: dict[int, Suspect] = {}
        self.hangs = width is not None
        self._report = report

    def offer(self, suspects: Iterable[Suspect]) -> None:
        """Take groups."""
        self.in_lane.update((each.group.id, each) for each in suspects)

    def hand_in(
        self,
        group_id: int,
        outcome: Outcome,
        reason: str | None = None,
        *,
        own_doing: bool = False,
        of_many: bool = False,
    ) -> None:
        """Report a poke of a group."""
        seen = report(self.in_lane[group_id].group, outcome, reason)
        self._report([seen._replace(own_doing=own_doing, of_many=of_many)])
        del self.in_lane[group_id]

    def has(self, group_id: int) -> bool:
        """Whether a group is in the lane."""
        return group_id in self.in_lane

    def retire(self) -> list[int]:
        """Give back all groups: no poke has begun."""
        given_back = list(self.in_lane)
        self.in_lane.clear()
        return given_back

    close = retire


class Place:
    """A pool on one range, unless it is settled otherwise, its clock, and workers with scripted pokes.

    :ivar leases: the leases of another process than the workers, on the same Redis.
    :ivar hanging: the last worker's lane for groups that overran.
    :ivar dying: its lane for groups with strikes.
    """

    def __init__(self, database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock(START)
        self.client = client
        self._url = str(database.engine.url)
        self._workers: list[Worker] = []
        self._pools: list[Pool] = []
        self.leases = self.other_leases()
        self.settings = self.settle_on()
        self.hanging: RecordingLane
        self.dying: RecordingLane
        monkeypatch.setattr(context, "leases_of", lambda _: self.other_leases())
        for name, stand_in in (("Publisher", SilentPublisher), ("Poker", ScriptedPoker), ("ClockWatch", Trusting)):
            monkeypatch.setattr(context, name, stand_in)
        monkeypatch.setattr(background, "IsolatedLane", self._lane)

    def _lane(self, *arguments: Any) -> RecordingLane:
        lane = RecordingLane(*arguments)
        setattr(self, "hanging" if lane.hangs else "dying", lane)
        return lane

    def other_leases(self) -> Leases:
        """Make the leases of another process."""
        return Leases(RedisStore(self.client), lease_ttl=30)

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
        return [str(state) for (state,) in self._rows("SELECT state FROM sensor_instance ORDER BY id")]

    def reasons(self) -> list[str | None]:
        """The reasons of all instances, in order."""
        return [reason for (reason,) in self._rows("SELECT reason FROM sensor_instance ORDER BY id")]

    def troubles(self) -> dict[int, Trouble]:
        """The groups in trouble."""
        return self.pool.database.read(troubles.of_range, self.shard_range)

    def _rows(self, query: str) -> Sequence[Any]:
        with self.pool.database.engine.connect() as connection:
            return connection.exec_driver_sql(query).all()

    def worker(self, **more: Any) -> Worker:
        """Make a worker."""
        made = Worker(self.settings, database=Database.of(self.settings, clock=self.clock), **more)
        self._workers.append(made)
        return made

    def close(self) -> None:
        """Close all pools and workers."""
        for worker in self._workers:
            worker.close()
        for pool in self._pools:
            pool.close()


def until_idle(worker: Worker) -> None:
    """Wait until a worker pokes nothing outside of jobs, and has settled what it has poked."""
    until("nothing is poked outside of jobs", lambda: not worker.background.is_busy, every=0.01)


def report(group: DueGroup, outcome: Outcome, reason: str | None = None) -> Report:
    """Return the report of a poke that has just ended."""
    said = {Outcome.CANNOT_POKE: f"here{CANNOT}a.Class is not enabled", Outcome.NOT_LANDED: None}
    seconds = 60.0 if outcome is Outcome.POKE_TIMEOUT else 0.0
    return Report(group, time.monotonic(), outcome, reason or said.get(outcome, f"it {outcome}"), None, seconds)
