"""A probe of a RabbitMQ: it makes what a pool needs, and takes messages."""

from collections.abc import Callable, Iterator

from kombu import Connection, Producer
from kombu.exceptions import OperationalError

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import hide_password, one_line
from sensorpool.publish import broker, wire
from sensorpool.publish.listener import queue_of_listener

_PATIENCE = 3.0  # seconds for a connection, and for each answer
_MESSAGES = 2  # RabbitMQ takes the first one of a connection, and blocks the connection then
_DIFFERS, _FORBIDDEN = 406, 403  # codes of AMQP 0-9-1: PRECONDITION_FAILED, ACCESS_REFUSED
Declare = Callable[[], object]


def probe(settings: Settings) -> None:
    """Declare what workers, beat and listeners declare, and send messages that no queue takes.

    :raises Unreachable: when RabbitMQ does not answer, refuses a declaration, or takes no messages (an alarm: it is out
        of memory or disk space).
    """
    where = f"the broker {hide_password(settings.broker)}"
    options = {"read_timeout": _PATIENCE, "write_timeout": _PATIENCE, "confirm_publish": True}
    connection = Connection(wire.broker_url(settings.broker), connect_timeout=_PATIENCE, transport_options=options)
    failures = (OperationalError, OSError, *connection.connection_errors)
    try:
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_PATIENCE)
            for what, name, declare in _declarations(settings, connection):
                try:
                    declare()
                except connection.channel_errors as error:
                    mend = _mend(getattr(error, "reply_code", None), what)
                    raise Unreachable(f"{where} answers, and refuses {name}: {one_line(error)}{mend}") from error
        except failures as error:
            raise Unreachable(f"{where} does not answer: {one_line(error)}") from error
        try:
            producer = Producer(connection, auto_declare=False)
            for _ in range(_MESSAGES):
                producer.publish("", routing_key="sensorpool.probe", timeout=_PATIENCE, confirm_timeout=_PATIENCE)
        except failures as error:
            raise Unreachable(
                f"{where} answers, and takes no messages: it may be out of memory or disk space "
                f"(`rabbitmq-diagnostics alarms`): {one_line(error)}"
            ) from error
    finally:
        broker.drop(connection)


def _declarations(settings: Settings, connection: Connection) -> Iterator[tuple[str, str, Declare]]:
    """Yield the kind and name of each, and what declares it, on a channel of its own: a refusal closes the channel."""
    jobs, results, heard = broker.jobs_queue(settings), broker.results_exchange(settings), queue_of_listener(settings)
    yield "queue", jobs.name, lambda: jobs.bind(connection.channel()).declare()
    yield "exchange", results.name, lambda: results.bind(connection.channel()).declare()

    def listen() -> None:
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
