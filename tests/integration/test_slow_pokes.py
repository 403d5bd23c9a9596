"""Pokes that outlive their job: no job waits for them, they keep no slot, and no group is poked twice at once."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool import Pool
from sensorpool.errors import SkipSensor, Unreachable
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.states import State
from sensorpool.poke.poker import Poker
from sensorpool.poke.poking import Poking
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.worker.background import Background
from sensorpool.worker.context import Worker
from tests.support.builders import classpath
from tests.support.sensors.answering import Lands
from tests.support.troubled import put_in_trouble, trouble_of

TICK = 0.2

overruns = pytest.mark.parametrize("pool", [1.0], indirect=True)


class Told:
    """Does as the test tells its name, in this process."""

    acts: ClassVar[dict[str, Callable[[], Any]]] = {}
    going_on: ClassVar[Counter[str]] = Counter()
    most: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> Any:
        Told.going_on[self.name] += 1
        Told.most[self.name] = max(Told.most[self.name], Told.going_on[self.name])
        try:
            return Told.acts[self.name]()
        finally:
            Told.going_on[self.name] -= 1


class ToldToo(Told):
    """The same, as another class."""


class HangsHere:
    """Hangs in a worker, and lands in a child of the isolated lane."""

    gate: ClassVar[threading.Event] = threading.Event()

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> Any:
        spec = sys.modules["__main__"].__spec__
        return (spec is not None and spec.name == "sensorpool.poke.child_main") or self.gate.wait(30)


class HangsEverywhere(HangsHere):
    """Hangs in the isolated lane, too."""

    def poke(self, context: Any) -> Any:
        return time.sleep(30)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The gate for which hanging pokes wait."""
    event = threading.Event()
    Told.acts.clear()
    Told.most.clear()
    yield event
    event.set()


@pytest.fixture
def pool(make_pool: Callable[..., Pool], request: pytest.FixtureRequest) -> Pool:
    """A pool whose pokes have time, except with `overruns`."""
    return make_pool(
        sensors_enabled=[
            *(f"{__name__}.{cls.__name__}" for cls in (Told, ToldToo, HangsHere, HangsEverywhere)),
            "tests.support.sensors.hanging.WaitsToBeKilled",
        ],
        shards=1,
        tick=TICK,
        poke_interval=TICK,
        poke_timeout=getattr(request, "param", 20.0),
        poke_concurrency=8,
    )


def register(pool: Pool, name: str, act: Callable[[], Any], cls: type = Told, **more: Any) -> int:
    """Register a sensor that does this."""
    Told.acts[name] = act
    return pool.register(f"{__name__}.{cls.__name__}", {"name": name}, **more).id


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    """Run the job of the one range, as soon as a period of each group has begun."""
    time.sleep(TICK)
    return worker.run_job(pool.ranges[0], "us").as_dict()


def slots_taken(worker: Worker) -> int:
    return worker.poker._slots.taken


def test_a_job_does_not_wait_for_slow_pokes_which_settle_by_themselves(
    pool: Pool, worker: Worker, gate: threading.Event
) -> None:
    slow = register(pool, "slow", lambda: gate.wait(30))
    began = time.monotonic()
    assert job(worker, pool)["slow"] == 1
    assert time.monotonic() - began < 10, "a poke may take 20 seconds"
    assert job(worker, pool)["busy"] == 1
    gate.set()
    until("it to settle", lambda: pool.wait([slow], 0)[slow] is State.SUCCESS)
    until("its slot", lambda: slots_taken(worker) == 0)
    assert Told.most["slow"] == 1


def test_a_slow_poke_that_redis_has_forgotten_is_not_made_twice(
    pool: Pool, worker: Worker, make_worker: Callable[..., Worker], gate: threading.Event
) -> None:
    other, shard_range = make_worker(pool.settings), pool.ranges[0]
    worker.background._renew_every = 0.1
    slow = register(pool, "slow", lambda: gate.wait(30))
    assert job(worker, pool)["slow"] == 1
    worker.leases.store.client.delete(key(shard_range, "background"))
    assert job(worker, pool)["busy"] == 1
    until("the note again", lambda: worker.leases.store.client.exists(key(shard_range, "background")))
    assert job(other, pool)["busy"] == 1
    gate.set()
    until("it to settle", lambda: pool.wait([slow], 0)[slow] is State.SUCCESS)
    assert Told.most["slow"] == 1


def test_a_slow_poke_whose_process_died_is_a_strike(
    make_pool: Callable[..., Pool], make_worker: Callable[..., Worker], gate: threading.Event
) -> None:
    """Its process renews its note no more; until the note has expired, no other process pokes the group."""
    quick = {"shards": 1, "tick": TICK, "poke_interval": TICK, "heartbeat": 0.5, "lease_ttl": 2.0}
    pool = make_pool(sensors_enabled=[f"{__name__}.Told"], poke_timeout=20.0, **quick)
    worker, other = make_worker(pool.settings), make_worker(pool.settings)
    slow = pool.get(register(pool, "slow", lambda: gate.wait(30)))
    assert job(worker, pool)["slow"] == 1
    worker.background._renew_every = 3_600.0
    assert job(other, pool)["busy"] == 1
    until("the strike", lambda: job(other, pool) and trouble_of(pool.database, slow.group_id).strikes == 1)


@overruns
def test_no_slot_is_lost_where_a_job_ends_with_an_error(
    pool: Pool, worker: Worker, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        register(pool, f"hangs{number}", lambda: gate.wait(30))
    landing = register(pool, "lands", lambda: True)

    def away(*_: Any) -> int:
        raise Unreachable("as told")

    with monkeypatch.context() as patched:
        patched.setattr(worker.settler, "settle", away)
        for _ in range(3):
            with pytest.raises(Unreachable):
                job(worker, pool)
    until("the slots of those that hang", lambda: slots_taken(worker) == 0)
    until("the other one", lambda: job(worker, pool) and pool.wait([landing], 0)[landing] is State.SUCCESS, every=0.2)


@pytest.mark.parametrize(("owner", "name"), [(Poking, "_deal"), (ThreadLane, "collect")])
def test_a_group_that_an_error_keeps_from_its_lane_is_due_again(
    make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """No memory is left between the hand-over and the lane, or between the lane and the report."""
    pool = make_pool(sensors_enabled=[classpath(Lands)], shards=1, tick=TICK, poke_interval=TICK)
    landing, worker, struck = pool.register(classpath(Lands), {}).id, Worker(pool.settings), list[int]()
    real = getattr(owner, name)

    def no_memory(*arguments: Any) -> Any:
        done = real(*arguments) if owner is ThreadLane else None
        if done or owner is Poking:
            struck.append(1)
            raise MemoryError
        return done

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, no_memory)
        with pytest.raises(MemoryError):
            job(worker, pool)
    assert struck
    until("it to land", lambda: job(worker, pool) and pool.wait([landing], 0)[landing] is State.SUCCESS, every=0.2)
    until("nothing to go on", lambda: not worker.background.is_busy)
    worker.close()


def test_another_class_finds_slots_though_one_hangs(pool: Pool, worker: Worker, gate: threading.Event) -> None:
    for number in range(30):
        register(pool, f"hangs{number}", lambda: gate.wait(30))
    other = register(pool, "other", lambda: True, ToldToo)
    done = job(worker, pool)
    assert pool.wait([other], 0) == {other: State.SUCCESS}
    assert (done["landed"], done["slow"], done["left"]) == (1, 7, 23)


@overruns
def test_healthy_groups_of_a_class_that_hangs_land_in_a_child(
    pool: Pool, worker: Worker, gate: threading.Event
) -> None:
    """Each of them has overrun once in the worker, or waits until the slots are free again."""
    HangsHere.gate = gate
    made = [pool.register(f"{__name__}.HangsHere", {"name": str(number)}).id for number in range(30)]
    hanging = pool.register(f"{__name__}.HangsEverywhere", {"name": "hangs"})

    def landed() -> int:
        return sum(state is State.SUCCESS for state in pool.wait(made, 0).values())

    until("some to land in a child", lambda: job(worker, pool) and landed() >= 10, every=0.1)
    assert not gate.is_set()
    until("the other to hang there", lambda: job(worker, pool) and trouble_of(pool.database, hanging.group_id).overruns)
    gate.set()
    until("the slots", lambda: slots_taken(worker) == 0)


@pytest.mark.parametrize("lost", ["its turn", "nothing"])
def test_what_a_worker_pokes_apart_when_it_closes_is_poked_at_once_by_the_next(
    pool: Pool, worker: Worker, tmp_path: Path, lost: str
) -> None:
    """Although it is not due: its turn was lost."""
    pid_file = tmp_path / "pid"
    context = {"pid_file": str(pid_file)}
    made = pool.register("tests.support.sensors.hanging.WaitsToBeKilled", context, poke_interval=3_600.0)
    put_in_trouble(pool.database, [made.group_id], overruns=1)
    assert job(worker, pool)["groups"] == 1
    first = int(until("its first poke", lambda: pid_file.exists() and pid_file.read_text()))
    pid_file.unlink()
    if lost == "nothing":
        job(worker, pool)
        assert not pid_file.exists()
        return
    worker.close()
    other = Worker(pool.settings)
    try:
        assert job(other, pool)["groups"] == 1
        assert int(until("its next poke", lambda: pid_file.exists() and pid_file.read_text())) != first
        assert trouble_of(pool.database, made.group_id).overruns == 1
        assert job(other, pool)["groups"] == 0, "its turn was lost once"
    finally:
        other.close()


def test_a_slow_poke_of_a_worker_that_closes_is_made_at_once_by_the_next(
    pool: Pool, worker: Worker, make_worker: Callable[..., Worker], gate: threading.Event
) -> None:
    """Although its group is not due: its turn was lost."""
    other = make_worker(pool.settings)
    register(pool, "slow", lambda: gate.wait(30), poke_interval=3_600.0)
    assert job(worker, pool)["slow"] == 1
    assert job(other, pool)["groups"] == 0
    worker.close()
    assert job(other, pool)["groups"] == 1
    assert job(other, pool)["groups"] == 0, "its turn was lost once"


def test_a_worker_whose_redis_is_away_closes_though_pokes_go_on(
    pool: Pool,
    worker: Worker,
    make_worker: Callable[..., Worker],
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = make_worker(pool.settings)
    register(pool, "slow", lambda: gate.wait(30))
    assert job(worker, pool)["slow"] == 1

    def away(*_: Any, **__: Any) -> None:
        raise Unreachable("as told")

    with monkeypatch.context() as patched:
        patched.setattr(worker.leases.waking, "keep", away)
        worker.close()
    assert job(other, pool)["busy"] == 1, "the note ends by itself"


def test_a_worn_process_is_patient_while_it_pokes_groups_apart(
    make_pool: Callable[..., Pool], make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_pool(max_abandoned=3, poke_concurrency=8).settings
    worker, found = make_worker(settings), {"abandoned": 2, "is_busy": False}
    for owner, name in ((Poker, "abandoned"), (Background, "is_busy")):
        monkeypatch.setattr(owner, name, property(lambda _, name=name: found[name]))
    worn = {}
    for found["abandoned"] in (2, 3, 7, 8):
        for found["is_busy"] in (False, True):
            worn[found["abandoned"], found["is_busy"]] = worker.wears_out()
    assert [case for case, is_worn in worn.items() if is_worn] == [(3, False), (7, False), (8, False), (8, True)]


def test_a_dirty_range_is_not_poked_again_by_the_second_round(
    pool: Pool, worker: Worker, gate: threading.Event
) -> None:
    def takes_long() -> bool:
        worker.leases.waking.raise_flags({pool.ranges[0]: []})  # a registration comes meanwhile
        return gate.wait(30)

    register(pool, "slow", takes_long)
    for _ in range(4):
        job(worker, pool)
    assert Told.most["slow"] == 1


def test_a_skip_that_comes_late_is_settled_as_any(pool: Pool, worker: Worker, gate: threading.Event) -> None:
    def skips() -> None:
        gate.wait(30)
        raise SkipSensor("late")

    instance = register(pool, "skips", skips)
    job(worker, pool)
    gate.set()
    until("its end", lambda: pool.wait([instance], 0)[instance] is State.SKIPPED)
