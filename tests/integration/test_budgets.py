"""Budgets in jobs: a backend is asked no more than it can bear, other groups do not wait, and all have their turn."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from harness.scripted import land, pokes
from harness.until import until
from sensorpool import Pool
from sensorpool.admin.instances import show
from sensorpool.admin.status import status
from sensorpool.model.states import State
from sensorpool.poke import classes
from sensorpool.poke.shared_call import Question
from sensorpool.store import loading
from sensorpool.worker.context import Worker
from tests.support.builders import classpath
from tests.support.sensors.backends import Asks

TICK = 0.2
ASKS = classpath(Asks)
RATE = 40


class Counts:
    """Counts how many of its pokes go on at once."""

    takes: ClassVar[float] = 0.02  # seconds
    now: ClassVar[int] = 0
    most: ClassVar[int] = 0
    poked: ClassVar[Counter[str]] = Counter()
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, conn_id: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        with self.lock:
            Counts.now += 1
            Counts.most = max(Counts.most, Counts.now)
            Counts.poked[self.name] += 1
        time.sleep(self.takes)
        with self.lock:
            Counts.now -= 1
        return False


class Together:
    """Answers many contexts in one call."""

    calls: ClassVar[list[int]] = []

    @staticmethod
    def backend_of(poke_context: dict[str, Any]) -> str:
        return "hive"

    @classmethod
    def poke_many(cls, contexts: list[dict[str, Any]]) -> list[bool]:
        cls.calls.append(len(contexts))
        return [False] * len(contexts)


@pytest.fixture
def pool(make_pool: Callable[..., Pool], request: pytest.FixtureRequest) -> Pool:
    """A pool with one range, and a budget for the backend `hive`."""
    Counts.most = 0
    Counts.poked.clear()
    Together.calls.clear()
    return make_pool(
        sensors_enabled=[ASKS, classpath(Counts), classpath(Together)],
        shards=1,
        tick=TICK,
        poke_interval=TICK,
        poke_concurrency=16,
        budgets=json.dumps({"hive": getattr(request, "param", f"{RATE}/s")}),
    )


def job(worker: Worker, pool: Pool) -> dict[str, Any]:
    """Run the job of the one range, a moment later."""
    time.sleep(TICK / 4)
    return worker.run_job(pool.ranges[0], "us").as_dict()


def some(pool: Pool, folder: Path, names: Iterable[str], conn_id: str = "hive", **how: Any) -> dict[str, int]:
    """Register groups that ask the backend of a connection."""
    contexts = {name: {"folder": str(folder), "name": name, "conn_id": conn_id} for name in names}
    made = pool.register_many({"sensor": ASKS, "poke_context": each, **how} for each in contexts.values())
    return dict(zip(contexts, (instance.id for instance in made), strict=True))


def most_in(folder: Path, names: Iterable[str], seconds: float) -> int:
    """Return the most pokes of these groups in any span of so many seconds."""
    found = pokes(folder)
    moments = sorted(poke.at for name in names for poke in found.get(name, ()))
    return max(sum(at <= other < at + seconds for other in moments) for at in moments)


def test_a_rate_is_kept_by_two_workers_and_all_groups_have_their_turn(
    pool: Pool, worker: Worker, tmp_path: Path
) -> None:
    waiting = some(pool, tmp_path, [f"hive{n}" for n in range(5 * RATE)])
    others = some(pool, tmp_path, ["one", "two"], "other")
    began = time.monotonic()
    with closing(Worker(pool.settings)) as second:

        def all_poked() -> bool:
            for each in (worker, second):
                job(each, pool)
            return pokes(tmp_path).keys() >= waiting.keys()

        until("a poke of each", all_poked, every=0.01)
        took = time.monotonic() - began
    allowed = RATE * took + RATE
    assert sum(len(pokes(tmp_path)[name]) for name in waiting) <= allowed
    assert most_in(tmp_path, waiting, 1.0) <= 2 * RATE
    assert len(pokes(tmp_path)["one"]) >= 5
    assert others


def test_who_waits_is_told_and_is_no_trouble(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    waiting = some(pool, tmp_path, [f"hive{n}" for n in range(5 * RATE)])
    until("a wait", lambda: job(worker, pool) and status(pool)["budgets"][0]["longest_s"] > 4 * TICK, every=0.01)
    found = status(pool)
    [budget] = found["budgets"]
    assert (budget["backends"], budget["budget"]) == ("hive", f"{RATE}/s")
    assert RATE < budget["waiting"] <= 5 * RATE
    assert found["left_over"]["overdue"] == 0
    shown = show(pool, next(iter(waiting.values())))
    assert f"groups wait for the budget of hive ({RATE}/s), for up to " in shown["next_poke_because"]
    for name in waiting:
        land(tmp_path, name)
    ids = [*waiting.values()]
    until("all to land", lambda: job(worker, pool) and set(pool.wait(ids, 0).values()) == {State.SUCCESS}, every=0.01)
    assert job(worker, pool).get("over_budget") is None


def test_who_waits_is_read_once(pool: Pool, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensors of thousands that wait are in the cache: a job asks only whether they are as they were."""
    some(pool, tmp_path, [f"hive{n}" for n in range(5 * RATE)])
    until("a look at each", lambda: job(worker, pool) and status(pool)["budgets"][0]["waiting"] >= RATE, every=0.01)
    read: list[int] = []
    groups = loading.groups
    monkeypatch.setattr(loading, "groups", lambda c, ids: read.append(len(ids)) or groups(c, ids))  # type: ignore[func-returns-value]
    for _ in range(3):
        assert job(worker, pool)["over_budget"] > 0
    assert not any(read)


def test_passed_deadlines_come_first(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    some(pool, tmp_path, [f"hive{n}" for n in range(20 * RATE)])
    job(worker, pool)
    ends = some(pool, tmp_path, ["ends"], timeout=TICK)
    until(
        "its end", lambda: job(worker, pool) and State.SENSING not in pool.wait(ends.values(), 0).values(), every=0.01
    )
    assert len(pokes(tmp_path)) < 10 * RATE, "it did not wait for the others"


@pytest.mark.parametrize("pool", ["3 at once"], indirect=True)
def test_so_many_pokes_at_once(pool: Pool, worker: Worker) -> None:
    sensor = classpath(Counts)
    pool.register_many({"sensor": sensor, "poke_context": {"name": str(n), "conn_id": "hive"}} for n in range(40))
    until("a poke of each", lambda: job(worker, pool) and len(Counts.poked) == 40, every=0.01)
    assert Counts.most == 3


@pytest.mark.parametrize("pool", ["2 at once"], indirect=True)
def test_pokes_that_outlast_their_job_give_their_places_back(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counts, "takes", 3 * TICK)
    count(pool, worker, 10, poke_interval=3_600)
    until("a poke of each", lambda: job(worker, pool) and len(Counts.poked) == 10, every=0.01)
    until("the end of the last ones", lambda: not Counts.now)  # they would count in the next test
    assert Counts.most == 2


@pytest.mark.parametrize("pool", ["5/s"], indirect=True)
def test_one_call_for_many_is_one_poke(pool: Pool, worker: Worker) -> None:
    pool.register_many({"sensor": classpath(Together), "poke_context": {"n": n}} for n in range(1_200))
    until("a poke of each", lambda: job(worker, pool) and sum(Together.calls) >= 1_200, every=0.01)
    assert len(Together.calls) <= 5, "three, and perhaps some before the class was known"


class Perhaps:
    """One call for many that can say no to none of them."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.fails = False
        self.takes = 0.0  # seconds

    def question(self, poke_context: Mapping[str, Any]) -> Question:
        return Question("all", poke_context["name"])

    def ask(self, kin: Any, asked: Sequence[Any]) -> list[bool]:
        self.calls.append(len(asked))
        time.sleep(self.takes)
        if self.fails:
            raise ValueError("no answer")
        return [True] * len(asked)


@pytest.fixture
def perhaps(monkeypatch: pytest.MonkeyPatch) -> Perhaps:
    """The shared call of `Counts`."""
    call = Perhaps()
    entry = SimpleNamespace(load=lambda: lambda cls, found: call)
    found = {classpath(Counts): entry}
    monkeypatch.setattr(classes.extensions, "named", lambda group: found if group == classes.SHARED_CALLS else {})
    return call


def count(pool: Pool, worker: Worker, number: int, **how: Any) -> None:
    """Register groups of `Counts`, whose class is known to the worker."""
    sensor = classpath(Counts)
    worker.poker.classes.find(sensor)
    contexts: list[dict[str, Any]] = [{"name": str(n), "conn_id": "hive"} for n in range(number)]
    pool.register_many({"sensor": sensor, "poke_context": each, **how} for each in contexts)


@pytest.mark.parametrize(("fails", "takes"), [(False, 0.0), (True, 0.0), (False, 2 * TICK), (True, 2 * TICK)])
@pytest.mark.parametrize("pool", ["3 at once"], indirect=True)
def test_what_a_shared_call_leaves_to_pokes_waits_for_the_budget(
    pool: Pool, perhaps: Perhaps, worker: Worker, fails: bool, takes: float
) -> None:
    perhaps.fails, perhaps.takes = fails, takes
    count(pool, worker, 40)
    until("a poke of each", lambda: job(worker, pool) and len(Counts.poked) == 40, every=0.01)
    until("the end of the last ones", lambda: not Counts.now)
    assert Counts.most <= 3
    assert max(perhaps.calls) == 40


@pytest.mark.parametrize("pool", ["20/s"], indirect=True)
def test_each_has_its_turn_where_a_shared_call_says_no_to_none(pool: Pool, perhaps: Perhaps, worker: Worker) -> None:
    began = time.monotonic()
    count(pool, worker, 100)
    until("a poke of each", lambda: job(worker, pool) and len(Counts.poked) == 100, every=0.01)
    took = time.monotonic() - began
    assert Counts.poked.total() <= 20 * took + 20 + len(perhaps.calls)
    assert len(perhaps.calls) <= 10, "not once more for what waits for its poke"
