"""The notifier and its triggers, on a real pool: what ends, how, and what is said meanwhile."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

pytest.importorskip("airflow")

from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from harness.until import PATIENCE, until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, status, working
from sensorpool.admin.actions import drain
from sensorpool.airflow import trigger as triggers
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.trigger import PauseTrigger, PoolTrigger
from sensorpool.airflow.triggerer import api_server
from sensorpool.airflow.triggerer import notifier as notifiers
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.airflow.triggerer.pace import Pace
from sensorpool.errors import SettingsError
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import Fact
from sensorpool.settle.flush import flush
from tests.airflow.running import Ti
from tests.airflow.told import Told

SENSOR = "sensorpool.sensors.TimeSensor"


@pytest.fixture
def pool(postgres_database: str, redis_url: str) -> Any:
    """A pool without a worker."""
    made = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url, poke_interval=60.0))
    yield made
    made.close()


@pytest.fixture
def make_notifier(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Notifier]]:
    """Makes this process's notifier."""
    notifiers_made: list[Notifier] = []
    monkeypatch.setattr(api_server, "FIRST_ANSWER", 0.0)  # there is none

    def make(**settings: Any) -> Notifier:
        made = Notifier(pool, AirflowSettings(**({"resume_hold": 0.0} | settings)))
        notifiers_made.append(made)
        monkeypatch.setattr(Notifier, "of_this_process", classmethod(lambda _: made))
        return made

    yield make
    for made in notifiers_made:
        made.close()


def register(pool: Pool, number: int = 0) -> int:
    target = f"2100-01-01T00:00:{number:02}Z"
    return pool.register(SENSOR, {"target_time": target}, external_id=f"try-{number}").id


def land(pool: Pool, instance_id: int, outcome: Outcome = Outcome.LANDED, *, tell: bool = True, **fact: Any) -> None:
    """Settle an instance, as a worker does."""
    with pool.database.engine.connect() as connection:
        row = connection.exec_driver_sql(f"SELECT group_id FROM sensor_instance WHERE id = {instance_id}").one()
    facts = [Fact(row[0], 1, 10**13, outcome, **fact)]
    if tell:
        pool.settler.settle(facts)
    else:
        flush(pool.database, facts, tick_ms=1000)


async def first(trigger: PoolTrigger) -> TriggerEvent:
    async for event in trigger.run():
        return event
    raise AssertionError("it ended without an event")


def run(made: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(made, PATIENCE)

    return asyncio.run(limited())


async def meanwhile(trigger: Told, act: Callable[[], Any]) -> TriggerEvent:
    """Act once the trigger waits; return its event."""
    waiting = asyncio.create_task(first(trigger))
    while not trigger.waits:
        await asyncio.sleep(0.02)
    await asyncio.to_thread(act)
    return await waiting


def test_a_success_ends_the_task_without_a_worker(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    make_notifier()
    one = register(pool)
    event = run(meanwhile(Told(one, direct=True), lambda: land(pool, one)))
    assert isinstance(event, TaskSuccessEvent)


@pytest.mark.parametrize("direct", [False, True])
def test_a_value_takes_a_worker(pool: Pool, make_notifier: Callable[..., Notifier], direct: bool) -> None:
    make_notifier()
    one = register(pool)
    event = run(meanwhile(Told(one, direct=direct), lambda: land(pool, one, xcom_value='{"rows": 3}')))
    assert event.payload == {"value_of": one}


def test_a_failure_takes_a_worker(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    make_notifier()
    one = register(pool)
    event = run(meanwhile(Told(one, direct=True), lambda: land(pool, one, Outcome.POKE_ERROR, reason="no")))
    assert event.payload == {"state": "failed", "ending": "poke_error", "reason": "no"}


def test_what_ended_before_the_triggerer_came_back_is_found(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    one = register(pool)
    land(pool, one)
    make_notifier()
    assert isinstance(run(first(PoolTrigger(one, direct=True))), TaskSuccessEvent)


def test_a_lost_message_is_made_up_for(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifiers, "SWEEP_EVERY", 0.5)
    make_notifier()
    one = register(pool)
    assert isinstance(run(meanwhile(Told(one, direct=True), lambda: land(pool, one, tell=False))), TaskSuccessEvent)


def test_nobody_resumes_within_the_hold(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    make_notifier(resume_hold=2.0)
    one = register(pool)
    registered_at = time.time()
    land(pool, one, Outcome.POKE_ERROR, reason="no")
    run(first(PoolTrigger(one, registered_at=registered_at)))
    assert time.time() >= registered_at + 2.0
    two = register(pool, 2)
    land(pool, two)
    began = time.monotonic()
    run(first(PoolTrigger(two, direct=True, registered_at=time.time() + 3600)))  # a worker's clock may be wrong
    assert time.monotonic() - began < PATIENCE


def test_an_unknown_instance_goes_back(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    make_notifier()
    event = run(first(PoolTrigger(4711)))
    assert (event.payload["state"], event.payload["ending"]) == (State.CANCELLED, Ending.HANDED_BACK)


def test_a_marked_task_is_cancelled(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier = make_notifier()
    one = register(pool)

    async def waits(_: Any) -> bool:
        return False

    monkeypatch.setattr(notifier.task_states, "waits", waits)

    async def mark() -> None:
        trigger = PoolTrigger(one)
        waiting = asyncio.create_task(first(trigger))
        await asyncio.sleep(0)
        waiting.cancel()
        await trigger.on_kill()

    run(mark())
    assert pool.wait([one], 0) == {one: State.CANCELLED}


def test_a_marked_task_is_cancelled_though_airflow_does_not_wait(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow cancels a trigger anew at each exchange with its supervisor, once a second, while its on_kill asks."""
    notifier = make_notifier()
    one = register(pool)

    async def mark() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def waits(_: Any) -> bool:
            asked.set()
            await answered.wait()
            return False

        monkeypatch.setattr(notifier.task_states, "waits", waits)
        killed = asyncio.create_task(PoolTrigger(one).on_kill())
        await asked.wait()
        killed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killed
        answered.set()
        await asyncio.to_thread(until, "its end", lambda: pool.wait([one], 0) == {one: State.CANCELLED})

    run(mark())


def reissue(pool: Pool, number: int = 1) -> int:
    """Restore a backup of before the first registration, and register another instance, whose id is the first one."""
    with pool.database.engine.begin() as connection:
        connection.exec_driver_sql("TRUNCATE sensor_instance, poke_group RESTART IDENTITY CASCADE")
    return register(pool, number)


def of_task(trigger: PoolTrigger, ti_id: Any) -> Any:
    trigger.task_instance = Ti("dag", "wait", id=ti_id)  # type: ignore[assignment]
    return trigger


@pytest.mark.parametrize("ended", [True, False])
def test_the_instance_of_another_task_ends_no_task(
    pool: Pool, make_notifier: Callable[..., Notifier], ended: bool
) -> None:
    make_notifier()
    mine = register(pool)
    assert reissue(pool) == mine, "the fault has not struck"
    if ended:
        land(pool, mine)
    event = run(first(of_task(PoolTrigger(mine, direct=True), "try-0")))
    assert event.payload["ending"] == Ending.HANDED_BACK
    assert event.payload["reason"] == f"the pool does not know instance {mine} any more"


@pytest.mark.parametrize("external_id", [None, "x"])
def test_the_instance_of_no_task_ends_no_task(
    pool: Pool, make_notifier: Callable[..., Notifier], external_id: str | None
) -> None:
    make_notifier()
    one = pool.register(SENSOR, {"target_time": "2100-01-01T00:00:00Z"}, external_id=external_id).id
    land(pool, one)
    event = run(first(of_task(PoolTrigger(one, direct=True), uuid4())))
    assert event.payload["ending"] == Ending.HANDED_BACK


def test_a_task_that_waits_takes_no_end_of_another_after_a_restore(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifiers, "SWEEP_EVERY", 0.5)
    make_notifier()
    one = register(pool)
    event = run(meanwhile(of_task(Told(one, direct=True), "try-0"), lambda: land(pool, reissue(pool))))
    assert event.payload["ending"] == Ending.HANDED_BACK


@pytest.mark.parametrize("spell", [UUID, str, lambda text: text.upper(), lambda text: text.replace("-", "")])
def test_an_id_of_a_task_instance_counts_however_it_is_spelt(
    pool: Pool, make_notifier: Callable[..., Notifier], spell: Callable[[str], Any]
) -> None:
    make_notifier()
    text = str(uuid4())
    one = pool.register(SENSOR, {"target_time": "2100-01-01T00:00:00Z"}, external_id=text).id
    land(pool, one)
    assert isinstance(run(first(of_task(PoolTrigger(one, direct=True), spell(text)))), TaskSuccessEvent)


@pytest.mark.parametrize(("ti_id", "state"), [("try-0", State.SENSING), ("try-1", State.CANCELLED)])
def test_a_marked_task_cancels_no_instance_of_another(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch, ti_id: str, state: State
) -> None:
    notifier = make_notifier()
    register(pool)
    other = reissue(pool)

    async def waits(_: Any) -> bool:
        return False

    monkeypatch.setattr(notifier.task_states, "waits", waits)
    run(of_task(PoolTrigger(other), ti_id).on_kill())
    assert pool.wait([other], 0) == {other: state}


def test_a_forged_message_ends_nobody(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    notifier = make_notifier()
    one = register(pool)

    def forge() -> None:
        for body in ({"settled": [{"id": one, "state": "success"}]}, {"settled": ["x"]}, {}, {"settled": [{"id": []}]}):
            try:
                notifier._hear(body)
            except TypeError:
                continue  # the listener says so and goes on
        land(pool, one, Outcome.SKIP, reason="really")

    assert run(meanwhile(Told(one, direct=True), forge)).payload["state"] == State.SKIPPED


def test_draining_hands_back(pool: Pool, make_notifier: Callable[..., Notifier]) -> None:
    make_notifier()
    one, two = register(pool), pool.register(SENSOR, {"target_time": "2100-01-02T00:00:00Z"}).id
    event = run(meanwhile(Told(one), lambda: list(drain(pool, 1000))))
    assert event.payload["ending"] == Ending.HANDED_BACK
    assert pool.wait([one, two], 0) == {one: State.CANCELLED, two: State.SENSING}  # two has nowhere to go


@pytest.mark.parametrize("on_pool_dead", ["wait", "native"])
def test_a_dead_pool(
    pool: Pool,
    make_notifier: Callable[..., Notifier],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    on_pool_dead: str,
) -> None:
    monkeypatch.setattr(notifiers, "SWEEP_EVERY", 0.2)
    make_notifier(on_pool_dead=on_pool_dead, pool_dead_after=0.5)
    one = register(pool)

    def until_dead() -> None:
        until("the triggerer says so", lambda: "the pool is dead: " in caplog.text)
        if on_pool_dead == "wait":
            assert pool.wait([one], 0) == {one: State.SENSING}
            pool.settler.cancel({one: "enough"})

    event = run(meanwhile(Told(one), until_dead))
    assert event.payload["ending"] == (Ending.CANCELLED if on_pool_dead == "wait" else Ending.HANDED_BACK)


def test_ten_thousand_ends_leave_the_triggerer_time_for_its_heartbeat() -> None:
    pace = Pace(now=50.0)
    turns = [pace.delay(50.0) for _ in range(10_000)]
    assert turns[999] == 0.0 < turns[1_010]
    in_one_second = max(sum(1 for turn in turns[1_000:] if second <= turn < second + 1) for second in range(100))
    assert in_one_second <= 101
    assert turns[-1] == pytest.approx(90.0, abs=0.1)
    assert pace.delay(1_000.0) == 0.0  # quiet has come, and gone


def test_each_end_takes_its_turn(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier, one, two = make_notifier(), register(pool), register(pool, 2)
    turns: list[float] = []
    monkeypatch.setattr(notifier.pace, "delay", lambda now: turns.append(now) or 0.3)
    land(pool, one)
    land(pool, two, Outcome.POKE_ERROR, reason="no")
    for trigger in (PoolTrigger(one, direct=True), PoolTrigger(two)):
        run(first(trigger))
        assert time.monotonic() >= turns[-1] + 0.3
    assert len(turns) == 2


def test_serialization_is_what_the_constructor_takes() -> None:
    path, arguments = PoolTrigger(7, direct=True, registered_at=3.5).serialize()
    assert path == f"{PoolTrigger.__module__}.{PoolTrigger.__qualname__}"
    assert PoolTrigger(**arguments).serialize() == (path, arguments)
    assert PoolTrigger.supports_triggerer_queue is False


def test_a_wrong_setting_is_looked_at_once_for_all_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not on their loop: a secrets backend may take its time."""
    looked: list[str] = []
    said: list[str] = []

    def load(*_: Any, **__: Any) -> Any:
        looked.append(threading.current_thread().name)
        raise SettingsError("SENSORPOOL_DATABASE_URL cannot be read")

    monkeypatch.setattr(notifiers.Settings, "load", load)
    monkeypatch.setattr(Notifier, "_failed", (0.0, None))

    async def come_by_all() -> None:
        tasks = [asyncio.create_task(Notifier.ready(said.append)) for _ in range(50)]
        while len(said) < len(tasks):
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()

    run(come_by_all())
    assert len(looked) == 1
    assert looked != [threading.main_thread().name]


def test_settings_that_hang_take_one_thread_of_the_loop_and_hold_up_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    released = threading.Event()

    def load(*_: Any, **__: Any) -> Any:
        looked.append(1)
        released.wait(PATIENCE)
        raise SettingsError("SENSORPOOL_DATABASE_URL cannot be read")

    monkeypatch.setattr(notifiers.Settings, "load", load)
    monkeypatch.setattr(Notifier, "_failed", (0.0, None))
    monkeypatch.setattr(triggers, "NO_TURN", 0.05)

    async def come_by_all() -> None:
        tasks = [asyncio.create_task(Notifier.ready(lambda _: None)) for _ in range(100)]
        try:
            await asyncio.wait_for(asyncio.to_thread(int), PATIENCE / 2)  # the triggers of others
            assert [event async for event in PauseTrigger().run()]
            assert not released.is_set()
        finally:
            released.set()
            for task in tasks:
                task.cancel()

    run(come_by_all())
    assert len(looked) == 1


def test_a_cancellation_is_left_to_rescue_where_the_pool_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notifier, "of_this_process", classmethod(lambda _: _unreachable()))
    monkeypatch.setattr(triggers, "_CANCELS_WITHIN", 0.05)

    async def cancelled_again() -> None:
        before = asyncio.all_tasks()
        killed = asyncio.create_task(PoolTrigger(1).on_kill())
        await asyncio.sleep(0)
        killed.cancel()
        await asyncio.wait({killed})
        asking = asyncio.all_tasks() - before
        assert asking
        _, left = await asyncio.wait(asking, timeout=PATIENCE)
        assert left == set()

    run(cancelled_again())


def _unreachable() -> Any:
    raise SettingsError("SENSORPOOL_DATABASE_URL cannot be read")


def test_health_tells_that_the_triggerers_are_gone_while_tasks_wait(
    pool: Pool, make_notifier: Callable[..., Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[str]:
        return [line for line in findings.health(pool) if "start `airflow triggerer`" in line]

    waits = register(pool)
    assert told() == [], "none was ever there"
    monkeypatch.setattr(notifiers, "SWEEP_EVERY", 0.5)
    notifier = make_notifier()
    until("its note", lambda: pool.roster.triggerer_age() is not None)
    notifier.close()
    assert told() == [], "it may be back soon"
    monkeypatch.setattr(working, "TRIGGERER_AWAY", 0.0)
    until("the instance to be older than the triggerer is away", told)
    for lines in (findings.health(pool), status.status(pool)["problems"]):
        assert [line for line in lines if line.startswith("no triggerer of Airflow has looked at the pool for ")]
    pool.leases.store.client.set(pool.leases.store.pool_key("triggerer_at"), "x")
    assert told() == []
    make_notifier()
    until("the note of the next one", lambda: told())
    pool.cancel(waits)
    assert told() == [], "nothing waits"
