"""What an idle worker does seldom, because each wake-up of a cold process costs milliseconds of CPU."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery.worker.consumer import Consumer
from kombu.asynchronous import Hub

from harness.service import Service, children
from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.instrumentation import alive
from sensorpool.model.states import State
from sensorpool.service.celery_patches import SturdyConsumer
from sensorpool.service.runtime import Runtime
from sensorpool.store.migrate import upgrade


def test_a_loop_that_starts_again_has_its_timers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery clears all timers when it has lost the connection; without ours a healthy worker counts as stuck."""
    rounds: list[float] = []
    monkeypatch.setattr(alive, "come_round", lambda: rounds.append(0))
    monkeypatch.setattr(Consumer, "register_with_event_loop", lambda *_: None)
    consumer = object.__new__(SturdyConsumer)
    consumer.pool = None
    consumer.app = SimpleNamespace(sensorpool_runtime=Runtime(Settings.load()))
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
