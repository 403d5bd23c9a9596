"""The parts of the machine's rules: a job that goes on for a while, a registration, and the healing of all faults."""

from collections.abc import Callable
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from sensorpool.errors import Refused, Unreachable
from sensorpool.model.values import Key, Registered, shard_ranges
from sensorpool.store.outbox_rows import LONGEST_PAUSE
from sensorpool.worker.chores.round import Place
from sensorpool.worker.rescue import rescue
from tests.faults.stateful import guarantees
from tests.faults.stateful.actors import END, Actor
from tests.faults.stateful.simulated import SimulatedWorker
from tests.faults.stateful.world import Broken, World, make_pool

TICK = 5_000
RANGES = shard_ranges(2, 16)


class Hands(RuleBasedStateMachine):
    """A world with two workers, and the actions on them."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = world = type(self).make_world()
        self.pool = make_pool(world)
        world.workers = [world.worker(), world.worker()]
        self.registering: Actor | None = None
        self.jobs = 0
        self.calm = False

    def _heal(self) -> None:
        world = self.world
        world.redis_there = world.broker_there = True
        world.let_commit()
        self._end_registering()
        for worker in world.workers:
            self._thaw(worker)
        world.fault()
        self._run_for(2 * self._longest())  # G5
        deadline = max((row.timeout_at for row in world.sensing()), default=0) - world.clock.now
        doubt = max(round(worker.clock._doubt_until * 1000) for worker in world.workers) - world.time.ms
        # a message that a broker did not take is tried again after a pause that grows with each refusal
        world.advance(max(deadline, doubt, LONGEST_PAUSE) + 1)
        self._run_for(3 * self._longest())  # G1
        world.look()
        guarantees.at_the_end(world)

    def _run_for(self, milliseconds: int) -> None:
        """Run a healthy pool until it has no work left."""
        for place in range(milliseconds // TICK + 1):
            worker = self.world.workers[place % 2]
            self._work(worker, END)
            for each in self.world.workers:
                self._poke_apart(each, True)
            self.world.check()
            self.world.advance(TICK)
            if not self.world.groups and place > 2:
                break
        rescue(self.world.workers[0], Place())

    def _longest(self) -> int:
        return max((row.poke_interval for row in self.world.sensing()), default=0) + TICK

    def _work(self, worker: SimulatedWorker, until: str) -> None:
        if worker.job is None:
            self.jobs += 1
            token = f"{worker.name}, job {self.jobs}"
            worker.job = Actor(lambda: [worker.work(each, token) for each in RANGES], owner=worker)
        job = worker.job
        job.run(until)
        if job.ended:
            worker.job = None
            if job.error is not None and not isinstance(job.error, Unreachable):
                raise job.error

    def _thaw(self, worker: SimulatedWorker) -> None:
        if worker.job is not None:
            self._work(worker, END)
        self._poke_apart(worker, True)

    def _poke_apart(self, worker: SimulatedWorker, hand_in: bool) -> None:
        worker.lane.poke()
        if hand_in:
            try:
                worker.hand_in_apart()
            except Unreachable:
                assert not self.world.redis_there

    def _kill(self, worker: SimulatedWorker) -> None:
        worker.redis.dead = True
        if worker.job is not None:
            worker.job.kill()
            worker.job = None

    def _expected(self, key: Key, name: str) -> tuple[bool, int | None]:
        """Return whether a registration has to be refused, and which instance it has to find."""
        world = self.world
        tries = {row.try_number: row for row in world.rows.values() if guarantees.key_of(row).task == key.task}
        same = tries.get(key.try_number)
        if tries and max(tries) > key.try_number:
            return True, None
        if same is not None:
            return world.arrivals[same.id].name != name, same.id
        others = any(world.arrivals[row.id].name != name for row in world.sensing())
        return world.hashing == "one digest" and others, None

    def _end_registering(self) -> None:
        if self.registering is not None:
            self.registering.run()
            self._check_registering()

    def _check_registering(self) -> None:
        actor = self.registering
        if actor is None or not actor.ended:
            return
        self.registering = None
        refused, same, name = actor.owner
        if isinstance(actor.error, Refused) != refused:
            raise Broken(f"KEYS: {name!r} was {'' if actor.error else 'not '}refused: {actor.error}") from actor.error
        if actor.error is not None and not isinstance(actor.error, Refused):
            raise actor.error
        if actor.error is None:
            instance: Registered = actor.value
            if same != (None if instance.created else instance.id):
                raise Broken(f"KEYS: {name!r} was registered as {instance}, not as instance {same}")
