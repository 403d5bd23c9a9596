"""A probe of what a RabbitMQ makes for a pool: its queue of jobs, its exchange of results, the queue of a listener."""

from collections.abc import Callable, Iterator

from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import hide_password, one_line
from sensorpool.publish import broker, wire
from sensorpool.publish.exchange import results_exchange
from sensorpool.publish.listener import queue_of_listener

_PATIENCE = 3.0  # seconds for a connection, and for each answer
_DIFFERS, _FORBIDDEN = 406, 403  # codes of AMQP 0-9-1: PRECONDITION_FAILED, ACCESS_REFUSED
Declare = Callable[[broker.Connection], object]


def probe(settings: Settings) -> None:
    """Declare what workers, beat and listeners declare; the queue of the listener is deleted again.

    :raises Unreachable: when RabbitMQ does not answer, or refuses one of them, with what mends it.
    """
    where = hide_password(settings.broker)
    limits = {"read_timeout": _PATIENCE, "write_timeout": _PATIENCE}
    connection = broker.Connection(
        wire.broker_url(settings.broker), connect_timeout=_PATIENCE, transport_options=limits
    )
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=_PATIENCE)
        for what, name, declare in _declarations(settings):
            try:
                declare(connection)
            except connection.channel_errors as error:
                mend = _mend(getattr(error, "reply_code", None), what)
                raise Unreachable(f"the broker {where} answers, and refuses {name}: {one_line(error)}{mend}") from error
    except (OperationalError, OSError, *connection.connection_errors) as error:
        raise Unreachable(f"the broker {where} does not answer: {one_line(error)}") from error
    finally:
        broker.drop(connection)


def _declarations(settings: Settings) -> Iterator[tuple[str, str, Declare]]:
    """Yield the kind and name of each, and what declares it, on a channel of its own: a refusal closes the channel."""
    name = wire.queue_of(settings)
    jobs = Queue(name, Exchange(name), routing_key=name)  # as Celery declares it
    yield "queue", name, lambda connection: jobs.bind(connection.channel()).declare()
    results = results_exchange(settings)
    yield "exchange", results.name, lambda connection: results.bind(connection.channel()).declare()
    heard = queue_of_listener(settings)

    def listen(connection: broker.Connection) -> None:
        bound = heard.bind(connection.channel())
        bound.declare()
        bound.delete()

    yield "queue", heard.name, listen


def _mend(code: int | None, what: str) -> str:
    if code == _DIFFERS:
        return f"; the {what} was made with other properties than the pool's: delete it, and it is made anew"
    if code == _FORBIDDEN:
        return "; give its account the rights to configure, write and read (`rabbitmqctl set_permissions`)"
    return ""
