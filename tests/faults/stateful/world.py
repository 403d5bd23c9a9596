"""The world around the pool: what is true when, which poke saw it, and the tables after every commit."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from sensorpool import Pool
from sensorpool.client.nudger import Nudger
from sensorpool.client.register import spell
from sensorpool.config.settings import Settings
from sensorpool.leases.lease import Leases
from sensorpool.model.states import State
from sensorpool.model.values import Milliseconds, Report, ShardRange
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.settler import Settler
from sensorpool.store.schema import poke_group, sensor_instance
from sensorpool.testing import Clock
from tests.faults.stateful import guarantees
from tests.faults.stateful.actors import Actor, current
from tests.faults.stateful.simulated import (
    SimulatedDatabase,
    SimulatedPublisher,
    SimulatedRedis,
    SimulatedWorker,
    Time,
    direct_outbox,
)

CONDITIONS = ("a", "b", "c")
FALSE, TRUE, ERROR = "false", "true", "error"
START = 2_000_000_000_000  # in the future of the machine's clock, so that Redis lets nothing expire by itself


class Broken(AssertionError):
    """A guarantee is broken; the message begins with its name."""


@dataclass(frozen=True)
class Observation:
    """The result of one poke, and its begin: as a place in the order of all events, and by the database's clock."""

    place: int
    name: str
    at: Milliseconds
    saw: str


@dataclass(frozen=True)
class Arrival:
    """When the world first saw a row: at its commit."""

    place: int
    ms: int
    name: str


@dataclass
class Round:
    """One load of a worker's job, and its result."""

    now: Milliseconds
    ms: int
    place: int
    ids: set[int]
    poked: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Jump:
    """A jump of the database's clock, and the workers that had seen the clock between it and the jump before."""

    ms: int
    known_to: frozenset[str]
    seen: dict[str, Any]  # each worker's last look at the clock


class World:
    """The whole state of one example. Times called ``ms`` have really passed; other times are by the database's clock.

    :param database: a real database with the tables.
    :param client: a client of a real Redis or a fake one.
    """

    def __init__(self, database: SimulatedDatabase, client: Any, settings: Settings, time: Time) -> None:
        self.database, self.client, self.settings, self.time = database, client, settings, time
        self.clock = Clock(START)
        database._clock = self.clock
        database.world = self
        time.ms = 0
        self.conditions = dict.fromkeys(CONDITIONS, FALSE)
        self.true_since: dict[str, int] = {}
        self.hashing = "whole"
        self.redis_there = self.broker_there = True
        self.place = 0
        self.observations: list[Observation] = []
        self.published: list[tuple[int, str]] = []
        self.problems: list[str] = []
        self.rows: dict[int, Any] = {}
        self.groups: dict[int, Any] = {}
        self.arrivals: dict[int, Arrival] = {}  # of instances
        self.group_arrivals: dict[int, int] = {}  # ms
        self.deadlines: dict[int, set[Milliseconds]] = defaultdict(set)
        self.poked_at: dict[int, Milliseconds] = {}  # group: the load before its last poke
        self.loaded_once: set[int] = set()
        self.excused: set[int] = set()  # handed to the isolated lane, which has not handed in yet
        self.called_off: set[int] = set()
        self.rounds: dict[str, dict[ShardRange, Round]] = {}  # of each worker's job
        self.last_round: dict[ShardRange, tuple[Milliseconds, dict[int, Milliseconds]]] = {}  # when; the intervals then
        self.owed: dict[ShardRange, set[int]] = {}  # loaded in the last round, and not poked
        self.fault_ms: int | None = None
        self.jumps: list[Jump] = []
        self.writer: Actor | None = None
        self.born = 0
        self.workers: list[SimulatedWorker] = []

    # events

    def reach(self, step: str) -> None:
        """Note a step; an actor that is to stop there does."""
        actor = current()
        if step == "finish.before" and actor is not None and not actor.killed:
            for shard_range in self.rounds[actor.owner.name]:
                guarantees.after_round(self, actor.owner, shard_range)
        if actor is not None:
            actor.reach(step)

    def let_commit(self) -> None:
        """Let an open transaction come to its end, unless it is the caller's own."""
        while self.writer is not None and self.writer is not current():
            self.writer.run("commit.after")

    def fault(self) -> None:
        """Note that something went wrong now."""
        self.fault_ms = self.time.ms

    def worker(self) -> SimulatedWorker:
        """Make a worker process."""
        self.born += 1
        return SimulatedWorker(self.settings, self.database, self.client, self, f"worker {self.born}")

    def advance(self, milliseconds: int) -> None:
        """Let time pass, for all processes and for Redis."""
        self.time.ms += milliseconds
        self.clock.now += milliseconds
        if self.writer is not None and milliseconds:
            self.fault()  # a commit that comes late
        alive = {worker.leases._owner for worker in self.workers}
        for name in self.client.keys("*"):
            if name.endswith(":background"):  # a living process renews its notes
                for owner, text in self.client.hgetall(name).items():
                    until, groups = text.split(" ", 1)
                    if owner not in alive:
                        self.client.hset(name, owner, f"{int(until) - milliseconds} {groups}")
            left = self.client.pttl(name)
            if left < 0:
                continue
            if left > milliseconds:
                self.client.pexpire(name, left - milliseconds)
                continue
            self.client.delete(name)
            if name.endswith(":lease"):
                self.fault()  # its holder was frozen for too long

    def jump(self, milliseconds: int) -> None:
        """Let the database's clock jump, and no other clock."""
        self.clock.now += milliseconds
        seen = {worker.name: worker.clock._seen for worker in self.workers if worker.clock._seen is not None}
        before = self.jumps[-1].seen if self.jumps else {}
        known = frozenset(name for name in seen if seen[name] is not before.get(name))
        self.jumps.append(Jump(self.time.ms, known, seen))
        self.fault()

    def turn(self, name: str, into: str) -> None:
        """Make a condition true or false, or have its backend fail."""
        self.conditions[name] = into
        if into == TRUE:
            self.true_since.setdefault(name, self.time.ms)
        else:
            self.true_since.pop(name, None)

    def observe(self, name: str) -> bool:
        """Answer a poke."""
        self.place += 1
        saw = self.conditions[name]
        self.observations.append(Observation(self.place, name, self.clock.now, saw))
        if saw == ERROR:
            raise ValueError(f"{name} cannot be asked")
        return saw == TRUE

    def poked(self, one: PokeUnit) -> list[Report]:
        """Poke a group."""
        actor = current()
        if actor is not None:
            guarantees.before_poke(self, self._round_of(actor, one.group.id), one.group)
            self.excused.discard(one.group.id)
        return one.poke()

    def _round_of(self, actor: Actor, group_id: int) -> "Round":
        """Return the round in which a worker's job loaded a group."""
        return next(each for each in self.rounds[actor.owner.name].values() if group_id in each.ids)

    def loaded(self, connection: Connection, held: Any, loaded: Any) -> None:
        """Note the load of a job."""
        actor = current()
        assert actor is not None
        shard_range, ids = held.lease.shard_range, {unit.group.id for unit in loaded.units}
        if len(ids) != len(loaded.units):
            self.problems.append("G4: a group is loaded twice at once")
        self.rounds[actor.owner.name] = {shard_range: Round(loaded.now, self.time.ms, self.place, ids)}
        rows = _all(connection, poke_group)
        own = {group_id: row for group_id, row in rows.items() if guarantees.is_inside(row, shard_range)}
        guarantees.after_load(self, actor.owner, own, held, loaded)
        self.loaded_once |= ids

    # looks at the tables

    def look(self) -> None:
        """Look at the tables; note new rows, and problems."""
        self.place += 1
        instances, groups = self.database.read(lambda c: (_all(c, sensor_instance), _all(c, poke_group)))
        before, self.rows = self.rows, instances
        self.groups = groups
        for row in instances.values():
            self.deadlines[row.group_id].add(row.next_deadline)
            if row.id not in self.arrivals:
                name = json.loads(row.poke_context)["name"]
                self.arrivals[row.id] = Arrival(self.place, self.time.ms, name)
            was = before.get(row.id)
            if row.state != State.SENSING and (was is None or was.state == State.SENSING):
                guarantees.at_ending(self, row)
        for group_id in groups:
            self.group_arrivals.setdefault(group_id, self.time.ms)
        guarantees.of_rows(self, before)
        guarantees.of_groups(self)

    def sensing(self) -> list[Any]:
        """Return the rows of sensing instances, in order."""
        return [row for row in self.rows.values() if row.state == State.SENSING]

    def tries(self, row: Any) -> list[Any]:
        """Return the rows of all tries of the same task instance."""
        task = _task(row)
        return [other for other in self.rows.values() if _task(other) == task]

    def say(self, row: Any) -> str:
        """Return a row as text for people."""
        key = spell(guarantees.key_of(row))
        return f"instance {row.id} ({key}) waiting for {self.arrivals[row.id].name!r}, which is {row.state}"

    def check(self) -> None:
        """Raise the first problem.

        :raises Broken: if there is one.
        """
        if self.problems:
            raise Broken(self.problems[0])


def make_pool(world: World) -> Pool:
    """Make the pool of the clients."""
    pool = Pool(world.settings)
    pool.database.dispose()
    pool.database = world.database
    pool.publisher = SimulatedPublisher(world)
    pool.outbox = direct_outbox(world.settings, world.database, pool.publisher)
    settings = world.settings
    pool.settler = Settler(pool.database, pool.outbox.deliver, tick_ms=settings.tick_ms)
    pool._leases = Leases(SimulatedRedis(world.client, world), lease_ttl=world.settings.lease_ttl)
    pool.nudger = Nudger(pool, pool.outbox)
    pool.nudger._leases = pool._leases
    return pool


def _task(row: Any) -> tuple[Any, ...]:
    return (row.dag_id, row.task_id, row.run_id, row.map_index)


def _all(connection: Connection, table: Any) -> dict[int, Any]:
    return {row.id: row for row in connection.execute(select(table).order_by(table.c.id))}
