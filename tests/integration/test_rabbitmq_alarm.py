"""A RabbitMQ that is short of memory blocks publishers: health and doctor report it."""

from collections.abc import Callable

import pytest

from harness.servers import RabbitMqServer
from harness.servers.rabbitmq import SCRIPTS
from harness.service import Service
from harness.until import until
from sensorpool.admin import findings
from sensorpool.admin.installation import probe_broker
from sensorpool.errors import Unreachable

pytestmark = pytest.mark.rabbitmq


def test_an_alarm_is_named(
    make_service: Callable[..., Service], rabbitmq_server: RabbitMqServer, amqp_url: str
) -> None:
    service = make_service(broker_url=amqp_url)
    service.start(1)
    control = str(SCRIPTS / "rabbitmqctl")
    rabbitmq_server.run(control, "--quiet", "set_vm_memory_high_watermark", "0.000001")
    try:
        with pytest.raises(Unreachable, match="answers, and takes no messages: it may be out of memory"):
            probe_broker(service.pool.settings)
        [found] = [each for each in findings.doctor(service.settings) if each.subject == "broker"]
        assert found.level == "wrong"
        assert "takes no messages" in found.said
        until("health", lambda: "takes no messages" in service.cli("health").stdout, 60)
    finally:
        rabbitmq_server.run(control, "--quiet", "set_vm_memory_high_watermark", "0.6")
    until("the pool to go on", lambda: service.cli("health").returncode == 0, 60)
    probe_broker(service.pool.settings)
