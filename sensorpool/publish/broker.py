"""The broker by kombu: its queue and exchange, and connections that are made and dropped, and what a failure means."""

from contextlib import suppress

from amqp.exceptions import MessageNacked
from kombu import Connection as Connection
from kombu import Exchange, Queue

from sensorpool.config.settings import Settings
from sensorpool.publish import wire

_CONNECT = 5.0  # seconds
# what kombu raises for a message that cannot be encoded
_UNSENDABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)


def jobs_queue(settings: Settings) -> Queue:
    """Return the queue of a pool's jobs as all processes declare it.

    On RabbitMQ its type is stated: quorum queues, which a virtual host may make by default, refuse Celery's prefetch.
    """
    name = wire.queue_of(settings)
    arguments = {"x-queue-type": "classic"} if wire.is_amqp(settings.broker) else None
    return Queue(name, Exchange(name), routing_key=name, queue_arguments=arguments)


def results_exchange(settings: Settings) -> Exchange:
    """Return the exchange of a pool's results."""
    name = f"{wire.QUEUE}.{settings.namespace}.results" if settings.namespace else f"{wire.QUEUE}.results"
    return Exchange(name, type="topic", durable=True)


def connection(url: str, namespace: str = "", *, prefixed: bool = True) -> Connection:
    """Return a connection to a broker. RabbitMQ confirms each message.

    Without a confirmation, a message on a half-open connection, or to a broker that takes no more, counts as sent.

    :param prefixed: whether the pool's key prefix is used in Redis.
    """
    options = wire.transport_options(url, namespace, prefixed=prefixed)
    if wire.is_amqp(url):
        options |= {"confirm_publish": True}
    return Connection(wire.broker_url(url), connect_timeout=_CONNECT, transport_options=options)


def drop(connection: Connection) -> None:
    """Drop a connection that failed. RabbitMQ's is not closed properly: a broker that hangs would not answer."""
    with suppress(Exception):
        if connection.transport.driver_type == "amqp":
            connection.collect()
        else:
            connection.release()


def refusal(connection: Connection, error: BaseException) -> BaseException | None:
    """Return why one message cannot be sent; None where the error concerns the broker itself.

    Redis never refuses a single message: it takes all or none. kombu counts a `KeyError` among the errors of a
    connection to Redis, but a message that cannot be encoded raises one too.
    """
    cause = error.__cause__ or error
    if isinstance(cause, _UNSENDABLE) and not isinstance(cause, OSError):
        return cause
    is_amqp = connection.transport.driver_type == "amqp"
    return cause if is_amqp and isinstance(cause, (*connection.channel_errors, MessageNacked)) else None
