"""Steps of a user's canvas that wait in the pool: a real application with one worker process, which no step holds."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from celery import chain, chord, group

import sensorpool
from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool.admin.instances import list_instances
from sensorpool.client import default
from sensorpool.errors import Refused, SensorFailed
from sensorpool.store.inspecting import Selection

SHOP = """
from celery import Celery

app = Celery("shop", broker="{redis}", backend="{redis}", include=["sensorpool.canvas"])
app.conf.update(task_default_queue="shop", broker_transport_options={{"global_keyprefix": ""}}, task_acks_late=True)

@app.task(name="shop.name")
def name(number):
    return {{"folder": "{folder}", "name": f"s{{number}}"}}

@app.task(name="shop.load")
def load(value):
    return ["loaded", value]

@app.task(name="shop.total")
def total(values):
    return sorted(str(value) for value in values)

@app.task(name="shop.kinds")
def kinds(*values, **named):
    return repr((values, named))

@app.task(name="shop.alarm")
def alarm(result):
    open("{folder}/alarms", "a").write(str(result["state"]) + " " + str(result["reason"]) + "\\n")
"""
SCRIPTED = "harness.scripted.ScriptedSensor"

# Celery's result back end on Redis
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


@pytest.fixture
def shop(
    make_service: Callable[..., Service], tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The user's application, imported here, and run by one worker that does one task at a time."""
    (tmp_path / "shop.py").write_text(SHOP.format(redis=redis_url, folder=tmp_path))
    service = make_service(on_settled_tasks="shop.*", on_settled_queue="shop")
    service.start()
    service.process_of("shop", "worker", "--pool=solo", "--loglevel=INFO", "--queues=shop")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = default.use(service.pool)
    import shop

    shop.app.set_current()
    yield shop
    default.use(before)
    del sys.modules["shop"]
    shop.app.close()


def waits(folder: Path, name: str, **options: Any) -> Any:
    context = {"folder": str(folder), "name": name, **options}
    return sensorpool.wait_for(SCRIPTED, context, timeout=60)


def sensing(count: int) -> bool:
    return default.default_pool().database.read(lambda c: _sensing(c)) == count


def _sensing(connection: Any) -> int:
    from sensorpool.store import inspecting

    return inspecting.count_by_state(connection).get("sensing", 0)


def test_a_chain_goes_on_when_it_lands_and_holds_no_worker(shop: ModuleType, tmp_path: Path) -> None:
    results = [chain(waits(tmp_path, f"s{n}"), shop.load.s()).apply_async() for n in range(3)]
    until("three steps that wait", lambda: sensing(3))
    assert shop.load.delay("in between").get(disable_sync_subtasks=False, timeout=30) == [
        "loaded",
        "in between",
    ]  # by the one worker
    assert {result.parent.state for result in results} == {"SENSING"}
    for n in range(3):
        land(tmp_path, f"s{n}")
    assert [result.get(disable_sync_subtasks=False, timeout=60) for result in results] == [
        ["loaded", {"name": f"s{n}"}] for n in range(3)
    ]


def test_a_step_has_the_name_that_it_is_given(shop: ModuleType, tmp_path: Path) -> None:
    context = {"folder": str(tmp_path), "name": "s1"}
    named = sensorpool.wait_for(SCRIPTED, context, name="orders of today", timeout=60)
    result = chain(named, shop.load.s()).apply_async()
    until("a step that waits", lambda: sensing(1))
    [row] = list_instances(default.default_pool(), Selection(text="of TODAY"), 10)
    assert (row["task_id"], row["run_id"], row["state"]) == ("orders of today", result.parent.id, "sensing")
    land(tmp_path, "s1")
    assert result.get(disable_sync_subtasks=False, timeout=60) == ["loaded", {"name": "s1"}]


@pytest.mark.parametrize("name", ["", 5, "x" * 251, "a\nb", " a"])
def test_a_name_that_cannot_be_one_is_refused_at_once(name: Any) -> None:
    with pytest.raises(Refused, match=r"^name "):
        sensorpool.wait_for(SCRIPTED, {"folder": "/", "name": "x"}, name=name)


def test_a_step_that_has_begun_does_not_expire(shop: ModuleType, tmp_path: Path) -> None:
    """A broker would drop its end without a word, and the chain would wait for ever."""
    result = chain(waits(tmp_path, "late").set(expires=600), shop.load.s()).apply_async(expires=600)
    until("a step that waits", lambda: sensing(1))
    kept = "SELECT on_settled FROM sensor_instance"
    [message] = default.default_pool().database.read(lambda c: c.exec_driver_sql(kept).scalars().all())
    assert "sensorpool.wait_for" in message
    assert "expires" not in message
    land(tmp_path, "late")
    assert result.get(disable_sync_subtasks=False, timeout=60) == ["loaded", {"name": "late"}]


def test_what_the_step_before_returns_is_the_context(shop: ModuleType, tmp_path: Path) -> None:
    result = chain(shop.name.s(7), sensorpool.wait_for(SCRIPTED), shop.load.s()).apply_async()
    until("a step that waits", lambda: sensing(1))
    land(tmp_path, "s7")
    assert result.get(disable_sync_subtasks=False, timeout=60) == ["loaded", {"name": "s7"}]


def test_arguments_arrive_as_celerys_json_says_them(shop: ModuleType, tmp_path: Path) -> None:
    """In a step behind a wait, in a callback, in what follows it, and in its link."""
    values = [datetime(2030, 1, 31, 12, tzinfo=UTC), datetime(2030, 1, 31), date(2030, 1, 31), time(12, 30)]
    values += [UUID(int=7), Decimal("1.10"), b"text", b"\xff"]
    one = sensorpool.register(
        SCRIPTED,
        {"folder": str(tmp_path), "name": "one"},
        on_success=chain(
            shop.kinds.si(*values).set(task_id="typed-1", link=shop.kinds.si(*values).set(task_id="typed-2")),
            shop.kinds.si(named=[{"deep": values}]).set(task_id="typed-3"),
        ),
    )
    result = chain(waits(tmp_path, "two"), shop.kinds.si(*values, named=values)).apply_async()
    until("two that wait", lambda: sensing(2))
    land(tmp_path, "one")
    land(tmp_path, "two")
    assert result.get(disable_sync_subtasks=False, timeout=60) == repr((tuple(values), {"named": values}))
    assert one.wait(30)
    found = [
        shop.app.AsyncResult(f"typed-{number}").get(disable_sync_subtasks=False, timeout=60) for number in (1, 2, 3)
    ]
    assert found == [*[repr((tuple(values), {}))] * 2, repr(((), {"named": [{"deep": values}]}))]


def test_a_step_that_fails_ends_the_chain(shop: ModuleType, tmp_path: Path) -> None:
    result = chain(waits(tmp_path, "bad", script="fail"), shop.load.s()).apply_async()
    with pytest.raises(SensorFailed, match="bad fails"):
        result.parent.get(disable_sync_subtasks=False, timeout=60)
    with pytest.raises(SensorFailed):
        result.get(disable_sync_subtasks=False, timeout=60)


def test_steps_in_a_chord(shop: ModuleType, tmp_path: Path) -> None:
    result = chord(group(waits(tmp_path, "a"), waits(tmp_path, "b"), shop.load.s("x")), shop.total.s()).apply_async()
    until("two steps that wait", lambda: sensing(2))
    land(tmp_path, "b")
    land(tmp_path, "a")
    assert result.get(disable_sync_subtasks=False, timeout=60) == ["['loaded', 'x']", "{'name': 'a'}", "{'name': 'b'}"]


def test_callbacks_of_a_registration(shop: ModuleType, tmp_path: Path) -> None:
    good = sensorpool.register(
        SCRIPTED,
        {"folder": str(tmp_path), "name": "good"},
        on_success=chain(shop.load.s().set(task_id="first-of-good"), shop.total.s().set(task_id="last-of-good")),
        on_failure=shop.alarm.s(),
    )
    bad = sensorpool.register(
        SCRIPTED,
        {"folder": str(tmp_path), "name": "bad", "script": "fail"},
        on_success=shop.load.s(),
        on_failure=group(shop.alarm.s(), shop.alarm.s()),
    )
    both = sensorpool.all_of(
        [good, bad], on_failure=chord([shop.load.s(), shop.load.s()], shop.total.s().set(task_id="both"))
    )
    land(tmp_path, "good")
    found = shop.app.AsyncResult("last-of-good").get(disable_sync_subtasks=False, timeout=60)
    assert len(found) == 2
    until(
        "two alarms",
        lambda: (tmp_path / "alarms").exists() and len((tmp_path / "alarms").read_text().splitlines()) == 2,
    )
    assert "failed FailSensor: bad fails" in (tmp_path / "alarms").read_text()
    assert both.wait(60) == "failed"
    assert len(shop.app.AsyncResult("both").get(disable_sync_subtasks=False, timeout=60)) == 2


def test_a_step_of_a_chord_that_outlives_the_memory_of_it_is_refused(shop: ModuleType, tmp_path: Path) -> None:
    """Celery's result back end forgets a chord after a day, and its body would never run."""
    step = sensorpool.wait_for(SCRIPTED, {"folder": str(tmp_path), "name": "a"}, timeout=86_401)
    result = chord([step, shop.load.s("x")], shop.total.s()).apply_async()
    with pytest.raises(Exception, match=r"Celery forgets the chord after 86400 s.*raise result_expires"):
        result.get(disable_sync_subtasks=False, timeout=60)
    assert sensing(0)


def test_a_step_of_a_chord_without_a_timeout_waits_within_the_memory_of_it(shop: ModuleType, tmp_path: Path) -> None:
    step = sensorpool.wait_for(SCRIPTED, {"folder": str(tmp_path), "name": "a"})
    result = chord([step, shop.load.s("x")], shop.total.s()).apply_async()
    until("a step that waits", lambda: sensing(1))
    pool = default.default_pool()
    [row] = pool.database.read(lambda c: c.exec_driver_sql("SELECT start_date, timeout_at FROM sensor_instance").all())
    assert row[1] - row[0] == 86_400_000
    land(tmp_path, "a")
    assert result.get(disable_sync_subtasks=False, timeout=60) == ["['loaded', 'x']", "{'name': 'a'}"]


def test_a_chain_in_the_header_waits_within_the_memory_of_its_chord(shop: ModuleType, tmp_path: Path) -> None:
    """Celery tells its last step of the chord, and not the step that waits."""
    late = sensorpool.wait_for(SCRIPTED, {"folder": str(tmp_path), "name": "a"}, timeout=86_401)
    result = chord([chain(late, shop.load.s()), shop.load.s("x")], shop.total.s()).apply_async()
    with pytest.raises(Exception, match=r"Celery forgets the chord after 86400 s.*raise result_expires"):
        result.get(disable_sync_subtasks=False, timeout=60)
    assert sensing(0)
    step = sensorpool.wait_for(SCRIPTED, {"folder": str(tmp_path), "name": "a"})
    result = chord([chain(step, shop.load.s()), shop.load.s("x")], shop.total.s()).apply_async()
    until("a step that waits", lambda: sensing(1))
    pool = default.default_pool()
    [row] = pool.database.read(lambda c: c.exec_driver_sql("SELECT start_date, timeout_at FROM sensor_instance").all())
    assert row[1] - row[0] == 86_400_000
    land(tmp_path, "a")
    assert len(result.get(disable_sync_subtasks=False, timeout=60)) == 2


def test_steps_that_come_from_callbacks_go_on(shop: ModuleType, tmp_path: Path) -> None:
    """Each is sent twice under one task id: when the registration ends, and when its own condition does."""
    first = sensorpool.register(
        SCRIPTED,
        {"folder": str(tmp_path), "name": "first"},
        on_settled=shop.alarm.s(),
        on_success=group(*(chain(_within(tmp_path, n), shop.load.s().set(task_id=f"after-{n}")) for n in "ab")),
    )
    land(tmp_path, "first")
    assert first.wait(60) == "success"
    until("two steps that wait", lambda: sensing(2))
    for n in "ab":
        land(tmp_path, n)
    for n in "ab":
        found = shop.app.AsyncResult(f"after-{n}").get(disable_sync_subtasks=False, timeout=60)
        assert found == ["loaded", {"name": n}]


def _within(folder: Path, name: str) -> Any:
    step = waits(folder, name)
    step.set_immutable(True)  # the result of the registration is not its context
    return step


def test_a_step_that_is_delivered_once_more_after_its_end_stays_ended(shop: ModuleType, tmp_path: Path) -> None:
    land(tmp_path, "a")
    step = waits(tmp_path, "a").set(task_id="twice")
    result = step.apply_async()
    assert result.get(disable_sync_subtasks=False, timeout=60) == {"name": "a"}
    waits(tmp_path, "a").set(task_id="twice").apply_async()
    done = shop.load.delay("after it")  # by the one worker, in turn
    assert done.get(disable_sync_subtasks=False, timeout=60) == ["loaded", "after it"]
    assert (result.state, result.get(disable_sync_subtasks=False)) == ("SUCCESS", {"name": "a"})
