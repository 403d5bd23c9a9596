"""What an idle worker does seldom, because each wake-up of a cold process costs milliseconds of CPU."""

from typing import Any

import pytest
from celery.worker.consumer import Consumer

from sensorpool.publish.broker import Channel, Connection, wait_long
from sensorpool.service.consumer import SturdyConsumer


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
        wait_long(connection)
        assert connection.channel().brpop_timeout == waits


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
