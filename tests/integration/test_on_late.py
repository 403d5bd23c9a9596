"""`on_late`: a task is sent for each late condition, by the road of all callbacks."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from harness.until import until
from sensorpool import Settings
from sensorpool.errors import SettingsError
from sensorpool.store import callback_rows
from tests.integration.test_late_conditions import DAY, HOUR, MINUTE, NEVER, TODAY, Late

TASK, QUEUE = "theirs.on_late", "alerts"
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def make(each_database: str) -> Iterator[Callable[..., Late]]:
    """Makes pools with late conditions: as many as it is told, each with a waiter."""
    made: list[Late] = []

    def make(count: int, **settings: object) -> Late:
        series = Late(each_database, on_settled_queue=QUEUE, **settings)
        made.append(series)
        series.land_daily("sales")
        for number in range(count):
            series.register(f"n{number}", "sales")
        series.now = TODAY + HOUR + 6 * MINUTE
        assert series.find() == count
        return series

    yield make
    for series in made:
        series.worker.close()
        series.pool.close()


def sent(redis_url: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the tasks in the queue, the oldest first, each with its argument."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        messages = [json.loads(each) for each in reversed(client.lrange(QUEUE, 0, -1))]
    return [(each["headers"]["task"], json.loads(b64decode(each["body"]))[0][0]) for each in messages]


def waiting(series: Late) -> list[Any]:
    return list(series.pool.database.read(callback_rows.waiting, 10))


def send(series: Late) -> None:
    """Have the waiting callbacks sent, as a round of rescue does, and wait for that."""
    series.worker.outbox.send_waiting_callbacks()
    until("the callbacks to be tried", lambda: not any(each["tries"] == 0 for each in waiting(series)))


def test_the_task_is_sent_once_for_each_condition(make: Callable[..., Late], redis_url: str) -> None:
    series = make(2, on_late_task=TASK, on_settled_broker_url=redis_url)
    send(series)
    series.now += HOUR
    assert series.find() == 0
    send(series)
    (first, one), (second, other) = sorted(sent(redis_url), key=lambda each: each[1]["group_id"])
    assert (first, second) == (TASK, TASK)
    assert one["poke_context"] == {"name": "n0"}
    assert other["poke_context"] == {"name": "n1"}
    assert (one["event"], one["op_classpath"], one["members"]) == ("late", NEVER, 1)
    assert (one["usually_lands_at"], one["late_after"]) == ("2026-09-28T01:00:00.000Z", "2026-09-28T01:05:00.000Z")
    assert len(one["waiters"]) == 1
    assert one["text"].startswith(f"sensorpool: {NEVER} ")
    assert one["text"].endswith("is late, and 1 wait for it; it usually lands at 2026-09-28T01:00:00.000Z")


def test_the_task_waits_for_its_broker_and_outlives_the_condition(make: Callable[..., Late], redis_url: str) -> None:
    series = make(1, on_late_task=TASK, on_settled_broker_url=NOWHERE)
    [group_id] = series.late_groups()
    send(series)
    [row] = waiting(series)
    assert (row["instance_id"], row["task"], row["tries"]) == (-group_id, TASK, 1)
    assert "does not answer" in row["cause"]
    [instance] = series.pool.database.read(
        lambda c: c.exec_driver_sql("SELECT id FROM sensor_instance").scalars().all()
    )
    series.pool.cancel(instance)
    series.now += DAY
    healed = make(0, on_late_task=TASK, on_settled_broker_url=redis_url)
    healed.now = series.now
    healed.worker.outbox.send_waiting_callbacks()
    until("the task to be sent", lambda: waiting(healed) == [])
    [(task, argument)] = sent(redis_url)
    assert (task, argument["group_id"]) == (TASK, group_id)


def test_a_mark_that_is_not_kept_sends_no_task(
    make: Callable[..., Late], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = make(0, on_late_task=TASK, on_settled_broker_url=redis_url)
    series.register("n", "sales", at=TODAY - DAY)
    series.now += DAY

    def fails(*_: Any) -> None:
        raise RuntimeError("the row is not written")

    monkeypatch.setattr(callback_rows, "note_late", fails)
    with pytest.raises(RuntimeError):
        series.find()
    assert series.late_groups() == []
    monkeypatch.undo()
    assert series.find() == 1
    send(series)
    assert len(sent(redis_url)) == 1


def test_without_the_setting_no_task_waits(make: Callable[..., Late]) -> None:
    assert waiting(make(1)) == []


def test_a_task_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(SettingsError, match="needs a broker that others can reach"):
        Settings.load(on_late_task="t", redis_url="memory://")
