"""A listener goes on whatever its broker does; the queue of a listener that is gone is deleted when it is too full."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from kombu import Connection, Exchange, Producer
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.errors import Unreachable
from sensorpool.publish import broker, listener, wire
from sensorpool.publish.listener import listen
from sensorpool.publish.publisher import Publisher

SCRIPTED = "harness.scripted.ScriptedSensor"
RESULTS = Exchange("sensorpool.results", type="topic", durable=True)


def send(settings: Settings, count: int) -> None:
    url = settings.broker
    with Connection(url, transport_options=wire.transport_options(url)) as connection:
        producer = Producer(connection)
        for _ in range(count):
            producer.publish({"settled": ["x"]}, exchange=RESULTS, routing_key="d", declare=[RESULTS])


def test_a_listener_is_counted(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load(redis_url=redis_url)
    monkeypatch.setattr(listener, "UNREAD", 10)
    publisher = Publisher(settings)
    with listen(settings):
        send(settings, 11)
        assert publisher.drop_abandoned_listeners() == 1
        assert publisher.drop_abandoned_listeners() == 0
    publisher.close()


def test_a_broker_in_memory_has_none(make_pool: Callable[..., Pool]) -> None:
    assert make_pool(sensors_enabled=SCRIPTED).publisher.drop_abandoned_listeners() == 0


def published(settings: Settings, number: int) -> None:
    url = settings.broker
    with Connection(wire.broker_url(url), transport_options=wire.transport_options(url)) as connection:
        message = {"settled": [{"id": number, "dag_id": "d"}]}
        Producer(connection).publish(message, exchange=RESULTS, routing_key="d", declare=[RESULTS])


class Listening:
    """A listener on a thread of its own; a result is published again and again until it is heard."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._heard: list[int] = []
        self._failed: list[BaseException] = []
        self._closing, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    def _listen(self) -> None:
        try:
            with listen(self._settings, until=self._closing.is_set) as bodies:
                self._ready.set()
                for body in bodies:
                    self._heard.extend(each["id"] for each in body["settled"])
        except BaseException as error:
            self._failed.append(error)

    def hears(self, number: int) -> None:
        def heard() -> bool:
            with suppress(OSError, OperationalError, RedisError):
                published(self._settings, number)
            assert not self._failed, self._failed
            return number in self._heard

        until(f"{number} to be heard", heard, every=0.3)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(10)
        assert not self._failed, self._failed


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections of listeners, in the order in which they are made."""
    made: list[Connection] = []

    class Noted(Connection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if threading.current_thread() is not threading.main_thread():
                made.append(self)

    monkeypatch.setattr(broker, "Connection", Noted)
    return made


def test_a_listener_outlasts_a_redis_that_forgets_everything(redis_url: str) -> None:
    """As one without persistence does that is started again."""
    listening = Listening(Settings.load(redis_url=redis_url))
    listening.hears(1)
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        client.client_kill_filter(_type="normal", skipme=True)
    listening.hears(2)
    listening.close()


def test_a_listener_outlasts_its_connection_to_redis(redis_url: str, connections: list[Connection]) -> None:
    listening = Listening(Settings.load(redis_url=redis_url))
    listening.hears(1)
    with redis.Redis.from_url(redis_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    listening.hears(2)
    listening.close()


def test_a_listener_outlasts_a_restart_of_redis(redis_server: Any, redis_url: str) -> None:
    listening = Listening(Settings.load(redis_url=redis_url))
    listening.hears(1)
    redis_server.kill()
    redis_server.start()
    listening.hears(2)
    listening.close()


def test_a_listener_outlasts_its_connection_to_rabbitmq(
    redis_url: str, amqp_url: str, connections: list[Connection]
) -> None:
    listening = Listening(Settings.load(redis_url=redis_url, broker_url=amqp_url))
    listening.hears(1)
    connections[0].connection.transport.sock.shutdown(socket.SHUT_RDWR)
    listening.hears(2)
    listening.close()


def test_a_listener_says_at_once_that_its_broker_is_away() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"redis://:hunter2@127.0.0.1:{probe.getsockname()[1]}/0"
        with pytest.raises(Unreachable, match="cannot listen") as caught, listen(Settings.load(redis_url=url)):
            pass
    assert "hunter2" not in str(caught.value)
