"""`sensorpool explain`: why an instance waits, or how its wait ended, as its reader asks it."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.until import until
from sensorpool import Instance, Pool
from sensorpool.admin.explain import explain, sentences
from sensorpool.admin.instances import show
from sensorpool.cli import inspecting
from sensorpool.cli.main import main
from sensorpool.client import default
from sensorpool.errors import InfraFailure, Unknown
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import State
from sensorpool.model.values import Key, Registration
from sensorpool.store.schema import sensor_instance
from sensorpool.worker.context import Worker

TICK = 0.2

pytestmark = pytest.mark.usefixtures("worker")  # what the process remembers of other tests is gone


class Says:
    """Does what a file says."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def poke(self, context: Any) -> bool:
        match self.path.read_text():
            case "raise":
                raise ValueError("no such table: orders")
            case "away":
                raise InfraFailure("the backend does not answer")
            case "slow":
                time.sleep(2)
            case "raise its own":
                raise ValueError(f"only for the readers of {self.path.name}")
        return self.path.read_text() == "land"


@pytest.fixture
def told(tmp_path: Path) -> Path:
    path = tmp_path / "told"
    path.write_text("no")
    return path


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    enabled = [f"{__name__}.Says"]
    return make_pool(sensors_enabled=enabled, shards=1, tick=TICK, poke_interval=TICK, poke_timeout=0.5)


@pytest.fixture
def register(pool: Pool, told: Path) -> Callable[..., int]:
    def make(**more: Any) -> int:
        context = {"path": str(told)}
        return pool.register_many([Registration(sensor=f"{__name__}.Says", poke_context=context, **more)])[0].id

    return make


@pytest.fixture
def poke_until(pool: Pool, worker: Worker) -> Callable[[int, str], dict[str, Any]]:
    def poked(instance_id: int, words: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def is_said() -> bool:
            worker.run_job(pool.ranges[0], "us")
            found.clear()
            found.update(explain(pool, instance_id))
            return words in found["why"]

        until(words, is_said, every=TICK)
        return found

    return poked


@pytest.mark.parametrize(
    ("says", "more", "why", "reason"),
    [
        ("no", {}, "found that it does not hold yet.", None),
        ("raise", {"silent_fail": True}, "raised an error, and its flags forgive that.", "no such table: orders"),
        ("away", {}, "could not ask its backend.", "the backend does not answer"),
        ("slow", {}, "overran its time limit", "0.5 s"),
    ],
)
def test_what_the_last_poke_saw(
    register: Callable[..., int], poke_until: Any, told: Path, says: str, more: dict[str, Any], why: str, reason: Any
) -> None:
    told.write_text(says)
    one = register(timeout=3_000, **more)
    found = poke_until(one, why)
    assert found["why"].startswith("The last poke of its condition, 20")
    assert " ago), " in found["why"]
    assert found["who"] == f"instance {one}"
    assert found["condition"] == f'{__name__}.Says {{"path": "{told}"}}'
    assert (reason or "None") in str(found["last_poke_said"])
    assert re.search(r"\(in (49 min \d+ s|50 min)\)", found["deadline"])
    assert found["deadline"].endswith("one more poke, and it fails if that finds nothing")
    assert found["who_else_waits"] is None
    assert f"every {TICK:g} s" in str(found["next_poke"]) or "is late" in found["why"]


def test_the_last_pokes_and_the_traceback_of_the_last_one(
    pool: Pool, register: Callable[..., int], poke_until: Any, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = register(timeout=3_000, silent_fail=True)
    poke_until(one, "does not hold yet")
    told.write_text("raise")
    found = poke_until(one, "raised an error")
    assert re.match(r"\d+ since 20.*: \d+ not_landed, 1 poke_error; they took \S+ to \S+ s$", found["last_pokes"])
    last = found["traceback"].splitlines()
    assert last[0] == "Traceback (most recent call last):"
    assert any(line.endswith(", in poke") for line in last)
    assert last[-1] == "ValueError: no such table: orders"
    shown = show(pool, one)
    assert [each["outcome"] for each in shown["last_pokes"]][-2:] == ["not_landed", "poke_error"]
    assert shown["last_pokes"][-1]["at"] == shown["last_poke_at"]
    assert shown["last_pokes"][-1]["reason"] == "ValueError: no such table: orders"
    assert shown["traceback"] == found["traceback"]
    monkeypatch.setattr(inspecting.PoolView, "to_look_at", lambda: pool)  # its Redis is in this process
    for command in ("show", "explain"):
        said = CliRunner().invoke(main, [command, str(one)]).output
        assert said.rstrip().endswith("\nValueError: no such table: orders")
        assert "Traceback (most recent call last):\n" in said
    told.write_text("no")
    assert "traceback" not in poke_until(one, "does not hold yet"), "the last poke raised nothing"


def test_each_condition_has_the_error_of_its_own_poke(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    ids = {}
    for name in ("alpha", "beta"):
        path = tmp_path / name
        path.write_text("raise its own")
        one = Registration(sensor=f"{__name__}.Says", poke_context={"path": str(path)}, silent_fail=True)
        ids[name] = pool.register_many([one])[0].id
    until(
        "a poke of each",
        lambda: worker.run_job(pool.ranges[0], "us") and all(show(pool, each)["last_poke_at"] for each in ids.values()),
        every=TICK,
    )
    for name, other in (("alpha", "beta"), ("beta", "alpha")):
        for found in (show(pool, ids[name]), explain(pool, ids[name])):
            assert found["traceback"].endswith(f"ValueError: only for the readers of {name}\n")
            assert other not in json.dumps(found)


def test_what_was_not_poked_yet_and_who_else_waits(pool: Pool, register: Callable[..., int]) -> None:
    """Nothing ticks here, and the reader learns that too."""
    first = register(key=Key("dag", "task", "run", 3, 2), execution_timeout=60, poke_interval=60)
    others = [register(key=Key("dag", f"task{number}", "run"), poke_interval=60) for number in range(6)]
    plain = register(poke_interval=60)
    found = explain(pool, first)
    assert found["why"].endswith("and its condition was not poked yet.")
    assert found["who"] == "dag.task[3] of run, try 2"
    assert found["who_else_waits"].startswith(
        "7, by the same pokes: dag.task0 of run, try 1, dag.task1 of run, try 1, "
    )
    assert found["who_else_waits"].endswith(" and 2 more")
    assert "its execution_timeout is over" in found["deadline"]
    assert found["stopped"].startswith("Ticks have stopped: `sensorpool standalone` is not running")
    assert found["next_poke"] is None
    assert sentences(pool, show(pool, first), watches=False)["stopped"] == (
        "The pool is not working, so nothing is poked. Its operators can see why."
    )
    assert "(soft_fail)" in explain(pool, register(soft_fail=True))["deadline"]
    assert explain(pool, plain)["who"] == f"instance {plain}"
    assert len(others) == 6


@pytest.mark.parametrize(
    ("says", "more", "why", "reason"),
    [
        ("land", {}, "its condition landed", None),
        ("raise", {}, "its poke raised an error", "no such table: orders"),
        ("no", {"timeout": 0.1}, "its timeout was over, and one more poke found nothing", "more than its timeout"),
        ("no", {"execution_timeout": 0.1}, "its execution_timeout was over", "execution_timeout of 0.1 s"),
    ],
)
def test_how_it_ended(
    register: Callable[..., int], poke_until: Any, told: Path, says: str, more: dict[str, Any], why: str, reason: Any
) -> None:
    told.write_text(says)
    found = poke_until(register(**more), why)
    assert found["why"].startswith(f"It waits no more: {why}, 20")
    assert " ago), after " in found["why"]
    assert (reason or "None") in str(found["reason"])
    assert "deadline" not in found


def test_a_row_that_was_edited_by_hand_is_explained(pool: Pool, register: Callable[..., int]) -> None:
    one, other = register(), register()
    odd = {"timeout_at": 2**60, "execution_context": "[nonsense", "poke_context": "x"}
    ended = {"state": "cancelled", "ending": "of another version", "settled_at": -5}
    with pool.database.engine.begin() as connection:
        for instance_id, values in ((one, odd), (other, ended)):
            connection.execute(sensor_instance.update().where(sensor_instance.c.id == instance_id).values(values))
    assert explain(pool, one)["deadline"].startswith(f"{2**60} ms: ")
    assert explain(pool, other)["why"] == "It waits no more: it is cancelled, -5 ms, after a time that is not known."


def test_the_command(pool: Pool, register: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("DATABASE_URL", pool.settings.database_url), ("REDIS_URL", pool.settings.redis_url)):
        monkeypatch.setenv(f"SENSORPOOL_{name}", str(value))
    one = register(key=Key("dag", "task", "run"))
    pool.cancel(one, "an operator\x1b[31m")
    printed = CliRunner().invoke(main, ["explain", str(one)])
    assert printed.exit_code == 0, printed.output
    assert printed.output.startswith("It waits no more: it was cancelled, 20")
    assert "\x1b" not in printed.output
    assert f"condition\t{__name__}.Says" in printed.output
    as_json = CliRunner().invoke(main, ["explain", str(one), "--json"])
    assert json.loads(as_json.output)["state"] == "cancelled"
    none = CliRunner().invoke(main, ["explain", "123456"])
    assert (none.exit_code, none.output.strip()) == (
        1,
        "sensorpool: there is no instance 123456: it was never registered, or has been pruned",
    )
    with pytest.raises(Unknown):
        explain(pool, 2**70)


def test_what_stops_the_pool_is_the_first_line(
    pool: Pool, register: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = register()
    monkeypatch.setattr(inspecting.PoolView, "to_look_at", lambda: pool)
    first, second, *rest = CliRunner().invoke(main, ["explain", str(one)]).output.splitlines()
    assert first.startswith("Ticks have stopped: ")
    assert second.endswith("its condition was not poked yet.")
    assert not [line for line in rest if line.startswith(("next poke", "stopped", "trouble"))]


def test_a_redis_that_is_away_is_asked_once(
    make_pool: Callable[..., Pool], told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs takes ten seconds to say nothing."""
    pool = make_pool(sensors_enabled=[f"{__name__}.Says"], redis_url="redis://127.0.0.1:1/0")
    made = pool.register(f"{__name__}.Says", {"path": str(told)})
    asked: list[object] = []
    real = RedisStore.call
    monkeypatch.setattr(
        RedisStore, "call", lambda store, *given, **more: (asked.append(given), real(store, *given, **more))[1]
    )
    explained = explain(pool, made.id)
    assert len(asked) == 1
    assert explained["stopped"] == show(pool, made.id)["unreachable"]
    assert "Redis redis://127.0.0.1:1/0 does not answer" in explained["stopped"]
    assert (explained["trouble"], explained["next_poke"]) == (None, None)


@pytest.fixture
def by_default(pool: Pool) -> Iterator[None]:
    before = default.use(pool)
    yield
    default.use(before)


@pytest.mark.usefixtures("by_default")
def test_a_join_names_what_it_waits_for_and_what_failed_it(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    def ended(instance: Instance) -> bool:
        worker.run_job(pool.ranges[0], "us")
        return pool.get(instance.id).state != State.SENSING

    made = [pool.register(f"{__name__}.Says", {"path": str(tmp_path / f"{n}")}) for n in range(8)]
    for n in range(8):
        (tmp_path / f"{n}").write_text("land" if n == 0 else "no")
    every, one = pool.all_of(made), pool.any_of(made[1:])
    until("the first lands", lambda: ended(made[0]))
    waits = ", ".join(str(each.id) for each in made[1:6])
    assert explain(pool, every.id)["waits_for"] == f"1 of 8 instances have landed; waiting: {waits} and 2 more"
    assert explain(pool, made[1].id)["waits_for"] is None
    (tmp_path / "3").write_text("raise")
    until("the join ends", lambda: ended(every))
    told = explain(pool, every.id)
    assert told["why"].startswith("It waits no more: one of the instances that it waits for has ended without landing,")
    assert f"instance {made[3].id} is failed" in told["reason"]
    assert "orders" not in told["reason"], "others may not be allowed to see it"
    for each in made[1:]:
        pool.cancel(each)
    until("the other ends", lambda: ended(one))
    told = explain(pool, one.id)
    assert "all instances that it waits for have ended without landing" in told["why"]
