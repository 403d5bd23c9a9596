"""What an idle worker does seldom, because each wake-up of a cold process costs milliseconds of CPU."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer
from kombu.asynchronous import Hub

from harness.service import Service, children
from harness.until import until
from sensorpool.instrumentation import alive
from sensorpool.model.states import State
from sensorpool.publish.broker import Channel, Connection, wait_long
from sensorpool.service.consumer import SturdyConsumer
from sensorpool.service.dead_children import look_again
from sensorpool.store.migrate import upgrade


def test_a_channel_keeps_its_client_as_long_as_its_connections(redis_url: str) -> None:
    with Connection(redis_url) as connection:
        channel = connection.channel()
        assert isinstance(channel, Channel)
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
        channel._disconnect_pools()  # as kombu does when the connection is lost
        with channel.conn_or_acquire() as third:
            assert third is not first
            assert third.connection_pool is channel.pool
            assert third.ping()


@pytest.mark.parametrize(("options", "waits"), [({}, 2), ({"polling_interval": 7}, 7)])
def test_an_idle_worker_asks_for_messages_seldom(redis_url: str, options: dict[str, Any], waits: int) -> None:
    with Connection(redis_url, transport_options=options) as connection:
        connection.ensure_connection()  # which makes the channel on which the worker consumes
        hub = Hub()
        connection.transport.register_with_event_loop(connection.connection, hub)
        each_second = connection.transport.cycle._binding_expiry_tref
        wait_long(connection, hub)
        assert connection.default_channel.brpop_timeout == waits
        assert connection.channel().brpop_timeout == waits
        assert each_second.canceled
        [at] = [at for at, _, each in hub.timer.queue if each is connection.transport.cycle._binding_expiry_tref]
        assert at > hub.timer.queue[0][0] + 5
        hub.close()


def test_a_loop_that_starts_again_has_its_timers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery clears all timers when it has lost the connection; without ours a healthy worker counts as stuck."""
    rounds: list[float] = []
    monkeypatch.setattr(alive, "come_round", lambda: rounds.append(0))
    monkeypatch.setattr(Consumer, "register_with_event_loop", lambda *_: None)
    consumer = object.__new__(SturdyConsumer)
    consumer.pool = None
    consumer.app = SimpleNamespace(sensorpool_runtime=SimpleNamespace(is_one_process=False))
    hub = Hub()
    for _ in range(2):
        consumer.register_with_event_loop(hub)
        [timer] = [entry for _, _, entry in hub.timer.queue if not entry.canceled]
        timer()
        hub.timer.clear()
    assert len(rounds) == 4  # at once, and by the timer
    hub.close()


def test_in_one_process_the_loop_does_not_speak_for_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "come_round", lambda: pytest.fail("it came round"))
    monkeypatch.setattr(Consumer, "register_with_event_loop", lambda *_: None)
    consumer = object.__new__(SturdyConsumer)
    consumer.pool = None
    consumer.app = SimpleNamespace(sensorpool_runtime=SimpleNamespace(is_one_process=True))
    hub = Hub()
    consumer.register_with_event_loop(hub)
    assert hub.timer.queue == []
    hub.close()


def test_after_a_death_billiard_looks_again_soon() -> None:
    told: list[str] = []
    children = SimpleNamespace(_untrack_child_process=lambda _child, _hub: told.append("untracked"))
    pool = SimpleNamespace(_pool=children, maintain_pool=lambda: told.append("looked"))
    hub = Hub()
    for _ in range(2):  # at each start of the loop
        look_again(pool, hub)
    children._untrack_child_process(None, hub)
    for _, _, entry in sorted(hub.timer.queue):
        entry()
    assert told == ["untracked", "looked", "looked"]
    hub.close()


@pytest.mark.parametrize(
    ("given", "interval"), [({}, 5.0), ({"heartbeat_interval": None}, 5.0), ({"heartbeat_interval": 1}, 1)]
)
def test_heartbeats_for_flower_come_seldom_unless_the_command_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], interval: float
) -> None:
    seen: dict[str, Any] = {}

    def made(self: Consumer, *_: Any, worker_options: dict[str, Any], **__: Any) -> None:
        self.connection_errors = ()
        seen.update(worker_options)

    monkeypatch.setattr(Consumer, "__init__", made)
    SturdyConsumer(worker_options=given)
    assert seen["heartbeat_interval"] == interval


def test_the_child_after_one_that_died_idle_works_and_ends(tmp_path: Path, redis_url: str) -> None:
    """It was forked while a thread of the worker held a lock, and waited for it for ever."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    service = Service(tmp_path, url, redis_url, sensors_enabled="sensorpool.sensors.PathSensor")
    try:
        worker = service.worker(concurrency=1)
        service.beat()
        until("the first ticks", service.is_ready)
        [child] = children(worker)
        os.kill(child.pid, signal.SIGKILL)
        until("the next child", lambda: [each for each in children(worker) if each.pid != child.pid], 20)
        (tmp_path / "there").touch()
        landed = service.pool.register(tmp_path / "there")
        assert service.pool.wait(landed, 30) == {landed.id: State.SUCCESS}
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
    finally:
        service.stop()
