"""The machine: rules that register, cancel, work, kill, freeze, lose and wait, in an order that Hypothesis chooses."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from sensorpool.model.due import next_period_at
from sensorpool.model.values import Key, Registration
from sensorpool.worker.chores.round import Place
from sensorpool.worker.rescue import rescue
from tests.faults.stateful.actors import END, Actor
from tests.faults.stateful.hands import TICK, Hands
from tests.faults.stateful.simulated import ConditionSensor
from tests.faults.stateful.world import CONDITIONS, ERROR, FALSE, TRUE

SENSOR = f"{ConditionSensor.__module__}.ConditionSensor"

JOB_STEPS = (
    *(END, "load.after", "poke", "seen", "poke.after", "settle.before", "settle.before_commit", "settle.after_commit"),
    *("commit.after", "publish.before", "publish.after", "finish.before", "finish.after", "lease.after"),
)
POKE_STEPS = ("seen", "load.after", "poke.after")
SETTLE_STEPS = (
    *("commit.after", "settle.before", "settle.before_commit", "settle.after_commit", "publish.before"),
    "publish.after",
)
REGISTER_STEPS = (END, "register.before_commit", "register.after_commit")
PATIENCE = ((5, 30, False), (10, 12, False), (20, 60, False), (5, 60, True), (20, 20, False))

_conditions = st.sampled_from(CONDITIONS)
_number = st.integers(0, 5)
_workers = st.integers(0, 1)
_may_go_wrong = precondition(lambda self: not self.calm)


class PoolMachine(Hands):
    """Two workers, three conditions, three tasks with three tries, and all faults."""

    @initialize(hashing=st.sampled_from(("whole", "one hashcode", "one digest")), calm=st.booleans())
    def begin(self, hashing: str, calm: bool) -> None:
        """Choose how conditions are hashed, and whether there are faults."""
        self.world.hashing = hashing
        self.calm = calm

    # the waiters

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
        """Register under a fresh key, also for a condition that landed before."""
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
        """Cancel an instance, which may have ended long ago."""
        self.world.let_commit()
        ids = sorted(self.world.rows)
        instance_id = ids[-1 - number % len(ids)]
        self.world.called_off.add(instance_id)
        self.pool.cancel(instance_id)

    # the workers

    @rule(worker=_workers, until=st.sampled_from(JOB_STEPS))
    def work(self, worker: int, until: str) -> None:
        """Begin a job, or go on with a frozen one, until one of its steps or its end."""
        self._work(self.world.workers[worker], until)

    @rule(worker=_workers, milliseconds=st.sampled_from((0, TICK)))
    def tick(self, worker: int, milliseconds: int) -> None:
        """Do a tick, whose message may come twice."""
        self.world.advance(milliseconds)
        self._work(self.world.workers[worker], END)

    @precondition(lambda self: len(self.world.groups) > 1)
    @rule(worker=_workers)
    def poke_slowly(self, worker: int) -> None:
        """Poke for so long that the job leaves other groups over, which come first in the next job."""
        self.world.advance(20_000)  # all groups are due
        self._work(self.world.workers[worker], "seen")
        self.world.advance(13_001)
        self._work(self.world.workers[worker], END)
        self.world.advance(TICK)
        self._work(self.world.workers[worker], END)

    @precondition(lambda self: self.world.groups)
    @rule(worker=_workers, number=_number, patience=st.sampled_from(PATIENCE), step=st.sampled_from(POKE_STEPS))
    def join_while_poked(self, worker: int, number: int, patience: tuple[int, int, bool], step: str) -> None:
        """Register for a condition that a worker has loaded, and may have poked already; then let the worker go on."""
        self._work(self.world.workers[worker], step)
        sensing = self.world.sensing()
        if sensing:
            name = self.world.arrivals[sensing[number % len(sensing)].id].name
            self.jobs += 1
            self.register(name, 100 + self.jobs, 1, patience)
        self._work(self.world.workers[worker], END)

    @_may_go_wrong
    @rule(worker=_workers, step=st.sampled_from(JOB_STEPS))
    def kill(self, worker: int, step: str) -> None:
        """Kill a worker at a step, or where it stands; another worker takes its place."""
        if step != END:
            self._work(self.world.workers[worker], step)
        self.world.fault()
        self._kill(self.world.workers[worker])
        self.world.workers[worker] = self.world.worker()

    @precondition(lambda self: self.world.groups and not self.calm)
    @rule(worker=_workers, number=_number, step=st.sampled_from(SETTLE_STEPS))
    def kill_while_settling(self, worker: int, number: int, step: str) -> None:
        """Kill a worker in its settle, after a condition has landed and all groups are due."""
        self._work(self.world.workers[worker], END)
        names = sorted({self.world.arrivals[row.id].name for row in self.world.sensing()})
        if names:
            self.turn(names[number % len(names)], TRUE)
        self.world.advance(20_000)
        self.kill(worker, step)

    @precondition(lambda self: any(worker.lane.suspects for worker in self.world.workers))
    @rule(worker=_workers, hand_in=st.booleans())
    def poke_apart(self, worker: int, hand_in: bool) -> None:
        """Poke the suspects of a worker, and hand in their facts now or later."""
        self._poke_apart(self.world.workers[worker], hand_in)

    @rule(worker=_workers)
    def rescue(self, worker: int) -> None:
        """Do a round of rescue."""
        rescue(self.world.workers[worker], Place())

    # the conditions

    @rule(name=_conditions, into=st.sampled_from((TRUE, TRUE, FALSE, ERROR)))
    def turn(self, name: str, into: str) -> None:
        """Make a condition true or false, or its backend fail."""
        self.world.turn(name, into)

    # time

    @rule(milliseconds=st.sampled_from((1, 2_500, TICK, 13_000, 31_000, 3_600_000)))
    def wait(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @precondition(lambda self: self.world.groups)
    @rule(number=_number, deadline=st.booleans(), shift=st.sampled_from((0, 0, -1, 1)), works=st.booleans())
    def wait_for_a_boundary(self, number: int, deadline: bool, shift: int, works: bool) -> None:
        """Wait until a period begins or a deadline comes, to the millisecond, and perhaps work at that moment."""
        groups = list(self.world.groups.values())
        group, now = groups[number % len(groups)], self.world.clock.now
        at = group.next_deadline if deadline else next_period_at(now, group.poke_interval, group.phase)
        self.world.advance(max(0, at + shift - now))
        if works:
            self._work(self.world.workers[0], END)

    @_may_go_wrong
    @rule(seconds=st.sampled_from((-3_600, -90, 90, 3_600)), works=st.booleans())
    def the_databases_clock_jumps(self, seconds: int, works: bool) -> None:
        """Let the database's clock jump, perhaps between two looks of a worker."""
        if works:
            self._work(self.world.workers[0], END)
        self.world.jump(seconds * 1000)
        if works:
            self.world.advance(TICK)
            self._work(self.world.workers[0], END)

    # losses

    @_may_go_wrong
    @rule(what=st.sampled_from(("state", "note", "background", "lease", "")))
    def redis_loses(self, what: str) -> None:
        """Let Redis lose the keys of one name, or all keys."""
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

    # checks

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Heal all faults, and check that all instances end."""
        try:
            if not self.world.problems:
                self._heal()
        finally:
            for worker in self.world.workers:
                self._kill(worker)
            if self.registering is not None:
                self.registering.kill()
        self.world.check()


def squeezed(digest: bytes, hashing: str) -> bytes:
    """Return a digest as a weaker hash would give."""
    if hashing == "one hashcode":
        return bytes(8) + digest[8:]
    return bytes(32) if hashing == "one digest" else digest
