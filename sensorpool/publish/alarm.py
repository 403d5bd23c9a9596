"""A probe of a RabbitMQ that answers but takes no messages: out of memory or disk space, it blocks publishers."""

from kombu import Producer
from kombu.exceptions import OperationalError

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import hide_password, one_line
from sensorpool.publish import broker, wire

_PATIENCE = 3.0  # seconds for a connection, and for the confirmation of a message
_MESSAGES = 2  # RabbitMQ takes the first one of a connection, and blocks the connection then


def probe(url: str) -> None:
    """Send messages that no queue takes, and wait for their confirmations.

    :raises Unreachable: when RabbitMQ does not answer, or answers and takes no messages.
    """
    where = hide_password(url)
    connection = broker.Connection(
        wire.broker_url(url), connect_timeout=_PATIENCE, transport_options={"confirm_publish": True}
    )
    try:
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_PATIENCE)
            producer = Producer(connection.default_channel, auto_declare=False)
        except (OperationalError, OSError, *connection.connection_errors) as error:
            raise Unreachable(f"the broker {where} does not answer: {one_line(error)}") from error
        try:
            for _ in range(_MESSAGES):
                producer.publish("", routing_key="sensorpool.probe", timeout=_PATIENCE, confirm_timeout=_PATIENCE)
        except (OperationalError, OSError, *connection.connection_errors) as error:
            raise Unreachable(
                f"the broker {where} answers, and takes no messages: it may be out of memory or disk space "
                f"(`rabbitmq-diagnostics alarms`): {one_line(error)}"
            ) from error
    finally:
        broker.drop(connection)
