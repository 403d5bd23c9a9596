"""RabbitMQ's queues as others have set them up: the pool works with them, or `doctor` names what refuses it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kombu import Connection, Exchange, Queue

from harness.scripted import land
from harness.servers import RabbitMqServer
from harness.servers.rabbitmq import SCRIPTS
from harness.service import Service
from sensorpool import Settings
from sensorpool.admin.installation import probe_broker
from sensorpool.errors import Unreachable
from sensorpool.model.states import State
from sensorpool.publish import rabbitmq_probe

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
def quorum_url(rabbitmq_server: RabbitMqServer) -> Iterator[str]:
    """URL of a virtual host that makes quorum queues by default."""
    rabbitmq_server.start()
    url = rabbitmq_server.fresh_virtual_host("--default-queue-type", "quorum")
    yield url
    rabbitmq_server.drop_virtual_host(url)


def _settings(url: str) -> Settings:
    return Settings.load(broker_url=url, redis_url="redis://127.0.0.1:1/0")  # the probe asks no Redis


def _declare(url: str, **arguments: object) -> None:
    with Connection(url) as connection:
        exchange = Exchange("sensorpool")
        queue = Queue("sensorpool", exchange, routing_key="sensorpool", queue_arguments=arguments)
        queue.bind(connection.channel()).declare()


def test_a_virtual_host_may_make_quorum_queues(
    make_service: Callable[..., Service], quorum_url: str, tmp_path: Path
) -> None:
    service = make_service(broker_url=quorum_url)
    service.start()
    context = {"folder": str(tmp_path), "name": "a"}
    waits = service.pool.register("harness.scripted.ScriptedSensor", context).id
    land(tmp_path, "a")
    assert service.pool.wait([waits], 30)[waits] is State.SUCCESS
    probe_broker(service.pool.settings)
    assert "Traceback" not in service.logs()


def test_a_queue_with_other_properties_is_named(amqp_url: str) -> None:
    settings = _settings(amqp_url)
    rabbitmq_probe.probe(settings)
    with Connection(amqp_url) as connection:
        connection.channel().queue_delete("sensorpool")
    _declare(amqp_url, **{"x-max-priority": 5})
    with pytest.raises(Unreachable, match=r"answers, and refuses sensorpool: .*406.*delete it"):
        rabbitmq_probe.probe(settings)


def test_an_account_without_rights_is_named(rabbitmq_server: RabbitMqServer, amqp_url: str) -> None:
    def control(*arguments: str) -> None:
        rabbitmq_server.run(str(SCRIPTS / "rabbitmqctl"), "--quiet", *arguments)

    control("add_user", "limited", "secret")
    try:
        control("set_permissions", "-p", amqp_url.rpartition("/")[2], "limited", "^$", ".*", ".*")
        host = amqp_url.rpartition("@")[2]
        with pytest.raises(Unreachable, match=r"refuses sensorpool: .*403.*set_permissions") as caught:
            rabbitmq_probe.probe(_settings(f"amqp://limited:secret@{host}"))
        assert "secret" not in str(caught.value)
    finally:
        control("delete_user", "limited")


def test_the_probe_leaves_no_listeners_queue(rabbitmq_server: RabbitMqServer, amqp_url: str) -> None:
    rabbitmq_probe.probe(_settings(amqp_url))
    with Connection(amqp_url) as connection:
        assert connection.channel().queue_declare("sensorpool", passive=True).consumer_count == 0
    tool, name = str(SCRIPTS / "rabbitmqctl"), amqp_url.rpartition("/")[2]
    rabbitmq_server.run(tool, "--quiet", "eval", f'1 = length(rabbit_amqqueue:list(<<"{name}">>)).')
