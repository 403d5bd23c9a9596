"""The machine: rules that register, cancel, work, kill, freeze, lose and wait, in an order that Hypothesis chooses."""

from collections.abc import Callable
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sensorpool import cycle
from sensorpool.due import next_slot_at
from sensorpool.errors import Refused, Unreachable
from sensorpool.model import Instance, Key, Registration, ShardRange
from sensorpool.rescue import OUTBOX_AGE, Place, rescue
from tests.faults.stateful import guarantees
from tests.faults.stateful.actors import END, Actor
from tests.faults.stateful.simulated import ConditionSensor, SimulatedWorker
from tests.faults.stateful.world import CONDITIONS, ERROR, FALSE, TRUE, Broken, World, make_pool

TICK = 5_000
RANGE = ShardRange(0, 16)
SENSOR = f"{ConditionSensor.__module__}.ConditionSensor"

JOB_STEPS = (
    *(END, "load.after", "poke", "seen", "poke.after", "settle.before", "settle.before_commit", "settle.after_commit"),
    *("commit.after", "publish.before", "publish.after", "finish.before", "finish.after", "lease.after"),
)
REGISTER_STEPS = (END, "register.before_commit", "register.after_commit")
PATIENCE = ((5, 30, False), (10, 12, False), (20, 60, False), (5, 60, True), (20, 20, False))

_conditions = st.sampled_from(CONDITIONS)
_number = st.integers(0, 5)
_workers = st.integers(0, 1)
_may_go_wrong = precondition(lambda self: not self.calm)


class PoolMachine(RuleBasedStateMachine):
    """Two workers, three conditions, three tasks of three tries, and everything that may go wrong."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = world = type(self).make_world()
        self.pool = make_pool(world)
        world.workers = [world.worker(), world.worker()]
        self.registering: Actor | None = None
        self.jobs = 0
        self.calm = False

    @initialize(hashing=st.sampled_from(("whole", "one hashcode", "one digest")), calm=st.booleans())
    def begin(self, hashing: str, calm: bool) -> None:
        """Choose how conditions are hashed, and whether anything may go wrong."""
        self.world.hashing = hashing
        self.calm = calm

    # those who wait

    @rule(
        name=_conditions,
        task=st.integers(0, 2),
        try_number=st.integers(1, 3),
        patience=st.sampled_from(PATIENCE),
        until=st.sampled_from(REGISTER_STEPS),
    )
    def register(
        self, name: str, task: int, try_number: int, patience: tuple[int, int, bool], until: str = END
    ) -> None:
        """Register, or register again."""
        self._end_registering()
        world, key = self.world, Key("dag", f"task {task}", "run", -1, try_number)
        interval, timeout, backoff = patience
        registration = Registration(
            sensor=SENSOR,
            poke_context={"name": name},
            key=key,
            poke_interval=interval,
            timeout=timeout,
            exponential_backoff=backoff,
        )
        world.let_commit()
        refused, same = self._expected(key, name)
        actor = Actor(lambda: self.pool.register_many([registration], try_out=False)[0])
        self.registering = actor
        actor.owner = (refused, same, name)
        actor.run(until)
        self._check_registering()

    @rule(name=_conditions, patience=st.sampled_from(PATIENCE))
    def register_afresh(self, name: str, patience: tuple[int, int, bool]) -> None:
        """Register under a key of its own: also for what landed before."""
        self.jobs += 1
        self.register(name, 100 + self.jobs, 1, patience)

    @precondition(lambda self: self.registering is not None)
    @rule(dies=st.booleans())
    def go_on_registering(self, dies: bool) -> None:
        assert self.registering is not None
        if dies and not self.calm:
            self.world.fault()
            self.registering.kill()
            self.registering = None
        else:
            self._end_registering()

    @precondition(lambda self: self.world.rows)
    @rule(number=_number)
    def cancel(self, number: int) -> None:
        """Call somebody off, who may have ended long ago."""
        self.world.let_commit()
        ids = sorted(self.world.rows)
        instance_id = ids[-1 - number % len(ids)]
        self.world.called_off.add(instance_id)
        self.pool.cancel(instance_id)

    # those who work

    @rule(worker=_workers, until=st.sampled_from(JOB_STEPS))
    def work(self, worker: int, until: str) -> None:
        """Begin a job, or go on with the one that stands frozen: until a step of it, or its end."""
        self._work(self.world.workers[worker], until)

    @rule(worker=_workers, milliseconds=st.sampled_from((0, TICK)))
    def tick(self, worker: int, milliseconds: int) -> None:
        """A tick: or its message comes twice."""
        self.world.advance(milliseconds)
        self._work(self.world.workers[worker], END)

    @rule(worker=_workers)
    def poke_slowly(self, worker: int) -> None:
        """Poke for so long that the job has no time for the others."""
        self._work(self.world.workers[worker], "seen")
        self.world.advance(13_001)
        self._work(self.world.workers[worker], END)

    @_may_go_wrong
    @rule(worker=_workers)
    def kill(self, worker: int) -> None:
        """Kill a worker, wherever it stands; another takes its place."""
        self.world.fault()
        self._kill(self.world.workers[worker])
        self.world.workers[worker] = self.world.worker()

    @precondition(lambda self: any(worker.lane.suspects for worker in self.world.workers))
    @rule(worker=_workers, hand_in=st.booleans())
    def poke_apart(self, worker: int, hand_in: bool) -> None:
        """Poke the suspects of a worker, and hand in what they saw now or later."""
        self._poke_apart(self.world.workers[worker], hand_in)

    @rule(worker=_workers)
    def rescue(self, worker: int) -> None:
        """Do a round of rescue."""
        rescue(self.world.workers[worker], Place())

    # what they wait for

    @rule(name=_conditions, into=st.sampled_from((TRUE, TRUE, FALSE, ERROR)))
    def turn(self, name: str, into: str) -> None:
        """A condition lands, is taken back, or cannot be asked about."""
        self.world.turn(name, into)

    # time

    @rule(milliseconds=st.sampled_from((1, 2_500, TICK, 13_000, 31_000, 3_600_000)))
    def wait(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @precondition(lambda self: self.world.groups)
    @rule(number=_number, deadline=st.booleans(), shift=st.sampled_from((0, 0, -1, 1)), works=st.booleans())
    def wait_for_a_boundary(self, number: int, deadline: bool, shift: int, works: bool) -> None:
        """Wait until a slot begins or a deadline comes, to the millisecond, and maybe work at this very moment."""
        groups = list(self.world.groups.values())
        group, now = groups[number % len(groups)], self.world.clock.now
        at = group.next_deadline if deadline else next_slot_at(now, group.poke_interval, group.phase)
        self.world.advance(max(0, at + shift - now))
        if works:
            self._work(self.world.workers[0], END)

    @_may_go_wrong
    @rule(seconds=st.sampled_from((-3_600, -90, 90, 3_600)))
    def the_databases_clock_jumps(self, seconds: int) -> None:
        self.world.jump(seconds * 1000)

    # what is lost

    @_may_go_wrong
    @rule(what=st.sampled_from(("state", "note", "suspects", "lease", "")))
    def redis_loses(self, what: str) -> None:
        """Redis loses one kind of key, or everything."""
        self.world.fault()
        for name in self.world.client.keys(f"*:{what}" if what else "*"):
            self.world.client.delete(name)

    @_may_go_wrong
    @rule(there=st.booleans())
    def redis_goes_or_comes(self, there: bool) -> None:
        if there != self.world.redis_there:
            self.world.fault()
        self.world.redis_there = there

    @rule(there=st.booleans())
    def the_broker_goes_or_comes(self, there: bool) -> None:
        self.world.broker_there = there

    # what must be so

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Heal everything, and see that everybody ends."""
        try:
            if not self.world.problems:
                self._heal()
        finally:
            for worker in self.world.workers:
                self._kill(worker)
            if self.registering is not None:
                self.registering.kill()
        self.world.check()

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
        world.advance(max(deadline, doubt, OUTBOX_AGE) + 1)
        self._run_for(3 * self._longest())  # G1
        world.look()
        guarantees.at_the_end(world)

    def _run_for(self, milliseconds: int) -> None:
        """Run a healthy pool, until there is nothing left to do."""
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
            worker.job = Actor(lambda: cycle.run(worker, RANGE, token), owner=worker)
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
        worker.leases.dead = True
        if worker.job is not None:
            worker.job.kill()
            worker.job = None

    def _expected(self, key: Key, name: str) -> tuple[bool, int | None]:
        """Say whether a registration has to be refused, and whom it has to find."""
        world = self.world
        tries = {row.try_number: row for row in world.rows.values() if guarantees.key_of(row).task == key.task}
        same = tries.get(key.try_number)
        if tries and max(tries) > key.try_number:
            return True, None
        if world.hashing == "one digest" and any(world.arrivals[row.id].name != name for row in world.sensing()):
            return True, None
        return same is not None and world.arrivals[same.id].name != name, same and same.id

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
            instance: Instance = actor.value
            if same != (None if instance.created else instance.id):
                raise Broken(f"KEYS: {name!r} was registered as {instance}, not as instance {same}")


def squeezed(digest: bytes, hashing: str) -> bytes:
    """Make a digest such as a patched hash would give."""
    if hashing == "one hashcode":
        return bytes(8) + digest[8:]
    return bytes(32) if hashing == "one digest" else digest
