"""`sensorpool.testing.pool`: code that registers, tested without a server."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from celery import Celery, _state, chain

import sensorpool
from sensorpool import State
from sensorpool.errors import ClassUnavailable, Refused, Unknown
from sensorpool.sensors import PathSensor, TimeSensor
from sensorpool.testing import TestPool

app = Celery("shop", broker="memory://", set_as_current=False)


@app.task(name="shop.load")
def load(result: object, table: str = "") -> None:
    """Load a table."""


@app.task(name="shop.alarm")
def alarm(result: object) -> None:
    """Tell an operator."""


@pytest.fixture
def pool() -> Iterator[TestPool]:
    with sensorpool.testing.pool() as pool:
        yield pool


def test_code_that_registers(pool: TestPool) -> None:
    instance = sensorpool.register(Path("/data/x"), on_success=load.s(table="x"), on_failure=alarm.s())
    assert pool.registered == [instance]
    assert instance.result is None
    assert instance.xcom_value is None
    assert pool.land(xcom_value={"rows": 3}) == {instance.id: State.SUCCESS}
    [sent] = pool.sent
    assert (sent.task, sent.kwargs, sent.result["xcom_value"]) == ("shop.load", {"table": "x"}, {"rows": 3})
    assert instance.result == sensorpool.get(instance.id).result
    assert instance.xcom_value == {"rows": 3}
    assert instance.reason is None
    assert instance.wait(0) is State.SUCCESS


def test_arguments_are_as_the_task_gets_them(pool: TestPool) -> None:
    sensorpool.register(Path("/data/x"), on_success=load.si(date(2030, 1, 31), table=Decimal("1.10")))
    pool.land()
    [sent] = pool.sent
    assert (sent.args, sent.kwargs) == ((date(2030, 1, 31),), {"table": Decimal("1.10")})


@pytest.mark.parametrize(
    ("end", "state"), [("fail", State.FAILED), ("time_out", State.FAILED), ("skip", State.SKIPPED)]
)
def test_other_ends(pool: TestPool, end: str, state: State) -> None:
    instance = sensorpool.register(Path("/data/x"), on_success=load.s(), on_failure=alarm.s(), on_settled=load.si(1))
    assert getattr(pool, end)(instance) == {instance.id: state}
    assert [each.task for each in pool.sent] == ["shop.load", "shop.alarm"]
    assert instance.reason
    assert instance.result is not None
    assert instance.result.state is state


def test_a_poke_at_command(pool: TestPool, tmp_path: Path) -> None:
    waits, moment = (
        sensorpool.register(tmp_path / "x"),
        sensorpool.register(TimeSensor(datetime(2020, 1, 1, tzinfo=UTC))),
    )
    assert pool.poke() == {waits.id: State.SENSING, moment.id: State.SUCCESS}
    (tmp_path / "x").touch()
    assert pool.poke(waits) == {waits.id: State.SUCCESS}


def test_spans_and_paths(pool: TestPool, tmp_path: Path) -> None:
    one = sensorpool.register(PathSensor, {"path": tmp_path / "x", "min_age": timedelta(minutes=5)})
    other = sensorpool.register(PathSensor(tmp_path / "x", min_age=timedelta(minutes=5)), timeout=timedelta(hours=1))
    text = sensorpool.register("sensorpool.sensors.PathSensor", {"path": str(tmp_path / "x"), "min_age": 300})
    assert one.group_id == text.group_id
    assert other.created
    with pytest.raises(Refused, match="time zone"):
        sensorpool.register(TimeSensor, {"target_time": datetime(2030, 1, 1)})
    with pytest.raises(Refused, match="leave it out"):
        sensorpool.register(tmp_path, {"path": "/x"})


def test_joins(pool: TestPool) -> None:
    some = [sensorpool.register(Path(f"/data/{n}")) for n in range(3)]
    every = sensorpool.all_of(some, on_success=load.s(), on_failure=alarm.s())
    first = sensorpool.any_of([each.id for each in some], on_success=alarm.s())
    pool.land(some[0])
    assert pool.poke(every, first) == {every.id: State.SENSING, first.id: State.SUCCESS}
    assert first.xcom_value == {"id": some[0].id}
    pool.land(*some[1:])
    assert pool.poke(every) == {every.id: State.SUCCESS}
    assert [each.task for each in pool.sent] == ["shop.alarm", "shop.load"]


def test_a_join_fails_with_its_first_member(pool: TestPool) -> None:
    some = [sensorpool.register(Path(f"/data/{n}")) for n in range(3)]
    every, first = sensorpool.all_of(some), sensorpool.any_of(some)
    pool.fail(some[1])
    assert pool.poke(every, first) == {every.id: State.FAILED, first.id: State.SENSING}
    assert every.reason is not None
    assert f"instance {some[1].id} is failed" in every.reason
    pool.fail(some[0], some[2])
    assert pool.poke(first) == {first.id: State.FAILED}


def test_joins_of_nothing_and_nobody_are_refused(pool: TestPool) -> None:
    with pytest.raises(Refused, match="1 to 3,000 instances, not 0"):
        sensorpool.all_of([])
    with pytest.raises(Refused, match="1 to 3,000 instances, not 3,001"):
        sensorpool.all_of(range(1, 3_002))
    with pytest.raises(Unknown, match="no instance 77"):
        sensorpool.any_of([77])


def test_the_allowlists_can_be_tested() -> None:
    with sensorpool.testing.pool(sensors_enabled=["sensorpool.sensors.PathSensor"], on_settled_tasks="shop.l*"):
        sensorpool.register(Path("/x"), on_success=load.s())
        with pytest.raises(ClassUnavailable, match="not enabled"):
            sensorpool.register("shop.sensors.Arrived", {})
        with pytest.raises(Refused, match=r"on_failure: shop\.alarm is not allowed"):
            sensorpool.register(Path("/x"), on_failure=alarm.s())


def test_the_pool_of_the_environment_is_back_afterwards() -> None:
    with sensorpool.testing.pool() as outer:
        with sensorpool.testing.pool() as inner:
            sensorpool.register(Path("/x"))
            assert len(inner.registered) == 1
        sensorpool.register(Path("/x"))
        assert len(outer.registered) == 1


def test_a_chain_as_a_callback(pool: TestPool) -> None:
    instance = sensorpool.register(Path("/x"), on_success=chain(load.s(table="a"), alarm.s()))
    pool.land(instance)
    [sent] = pool.sent
    assert (sent.task, sent.kwargs) == ("shop.load", {"table": "a"})
    assert [step["task"] for step in sent.options["chain"]] == ["shop.alarm"]


async def _register_and_wait(path: Path) -> State:
    instance = await sensorpool.aio.register(path)
    pool = await sensorpool.aio.get(instance.id)
    assert pool == instance._replace(created=False, opened=False)
    await sensorpool.aio.cancel(instance)
    return (await sensorpool.aio.wait(instance))[instance.id]


def test_on_an_event_loop(pool: TestPool) -> None:
    import asyncio

    assert asyncio.run(_register_and_wait(Path("/x"))) is State.CANCELLED


def test_an_instance_can_be_pickled(pool: TestPool) -> None:
    import pickle

    instance = sensorpool.register(Path("/x"))
    copy = pickle.loads(pickle.dumps(instance))
    assert copy == instance
    pool.land(instance)
    with pytest.raises(Refused, match=rf"look it up with sensorpool\.get\({instance.id}\)"):
        copy.wait(1)
    assert sensorpool.wait(copy, 1) == {instance.id: State.SUCCESS}


def test_a_wait_does_not_sleep_in_a_test(pool: TestPool, tmp_path: Path) -> None:
    instance = sensorpool.register(tmp_path / "x")
    assert instance.wait(3600) == "sensing"
    with pytest.raises(Refused, match=f"instance {instance.id} waits on after a poke"):
        instance.wait()
    (tmp_path / "x").touch()
    assert instance.wait(3600) == "sensing"
    assert instance.wait() == "success"
    assert pool.wait([instance.id]) == {instance.id: "success"}


def test_an_eager_chain_with_a_step_that_waits(pool: TestPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_state, "_task_join_will_block", False)  # a worker in this process would have it so for good

    @app.task(name="shop.tell")
    def tell(given: object) -> str:
        return f"told {given}"

    waiting = chain(sensorpool.wait_for(tmp_path / "x"), tell.s())
    with pytest.raises(Refused, match="waits on after a poke"):
        waiting.apply(throw=True)
    (tmp_path / "x").touch()
    assert waiting.apply(throw=True).get(disable_sync_subtasks=False) == "told None"
    assert len(pool.registered) == 2


def test_a_wait_on_the_loop_does_not_sleep_either(pool: TestPool, tmp_path: Path) -> None:
    waits = sensorpool.register(tmp_path / "x")
    assert asyncio.run(sensorpool.aio.wait(waits, 3600)) == {waits.id: State.SENSING}
    with pytest.raises(Refused, match="a test cannot wait without a timeout"):
        asyncio.run(sensorpool.aio.wait(waits))
    pool.land(waits)
    assert asyncio.run(sensorpool.aio.wait(waits)) == {waits.id: State.SUCCESS}


def test_a_wake_up_says_how_many_conditions_it_concerns(pool: TestPool, tmp_path: Path) -> None:
    sensorpool.register(tmp_path / "x")
    assert sensorpool.wake("sensorpool.sensors.PathSensor", {"path": str(tmp_path / "x")}) == 1
    assert sensorpool.wake("sensorpool.sensors.PathSensor", {"path": str(tmp_path / "y")}) == 0
    with pytest.raises(Refused, match="names one of these"):
        sensorpool.wake()


def test_an_instance_of_another_pool_is_not_joined(pool: TestPool) -> None:
    key = {"dag_id": "d", "task_id": "t", "run_id": "r"}
    with sensorpool.testing.pool():
        other = sensorpool.register(Path("/data/x"), **key)
    mine = sensorpool.register(Path("/data/x"))
    assert (mine.id, mine.hashcode) == (other.id, other.hashcode), "the fault is not there"
    for join_of in (sensorpool.all_of, sensorpool.any_of):
        with pytest.raises(Unknown, match=r"there is no instance 1 of .*'d'.* any more"):
            join_of([other])
    assert pool.registered == [mine]


def test_a_result_is_asked_for_by_an_id_or_an_instance(pool: TestPool, tmp_path: Path) -> None:
    waits = sensorpool.register(tmp_path / "x")
    assert asyncio.run(sensorpool.aio.result(waits.id)) is None
    pool.land(waits)
    for named in (waits.id, waits):
        found = asyncio.run(sensorpool.aio.result(named))
        assert found is not None
        assert found.state is State.SUCCESS
    for unknown in (77, 0, 2**64):
        with pytest.raises(Unknown, match="there is no instance"):
            asyncio.run(sensorpool.aio.result(unknown))
    with pytest.raises(Refused, match="named by its id"):
        asyncio.run(sensorpool.aio.result("1"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "its xcom_value is not JSON"),
        ({1, 2}, "its xcom_value is not JSON"),
        ("x" * 262_143, "262,145 bytes of JSON; 262,144 are allowed"),
        ("\ud800", "a lone surrogate"),
    ],
)
def test_what_is_an_error_of_a_poke_does_not_land(pool: TestPool, value: object, said: str) -> None:
    instance = sensorpool.register(Path("/x"))
    with pytest.raises(Refused, match=said):
        pool.land(instance, xcom_value=value)
    assert instance.wait(0) is State.SENSING
    assert pool.land(instance, xcom_value="x" * 262_142) == {instance.id: State.SUCCESS}


@pytest.mark.parametrize("timeout", ["5", float("nan"), True, 10**400], ids=["text", "nan", "bool", "huge"])
def test_a_timeout_is_checked_as_in_a_pool_of_servers(pool: TestPool, timeout: float) -> None:
    instance = sensorpool.register(Path("/x"))
    with pytest.raises(Refused, match="timeout must be a number of seconds"):
        instance.wait(timeout)
    with pytest.raises(Refused, match="timeout must be a number of seconds"):
        asyncio.run(sensorpool.aio.wait(instance, timeout))
    assert instance.wait(timedelta(hours=1)) is State.SENSING


WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None  # an import of it fails
import sensorpool
from sensorpool import testing
with testing.pool() as pool:
    sensorpool.register("sensorpool.sensors.PathSensor", {"path": "/x"})
    print(*pool.land().values())
"""


def test_it_stands_without_pytest() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "success\n"), done.stderr


OF_THE_PLUGIN = """
import sensorpool
from sensorpool.pytest_plugin import Sent, TestPool, pool
def test_it(sensor_pool: TestPool) -> None:
    assert sensor_pool.registered == [sensorpool.register("sensorpool.sensors.PathSensor", {"path": "/x"})]
"""


def test_the_plugin_has_the_fixture_and_the_names_of_the_pool(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["sensorpool.pytest_plugin"]\n')
    (tmp_path / "test_it.py").write_text(OF_THE_PLUGIN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout
