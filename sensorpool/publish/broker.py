"""A connection to the broker that what somebody else wrote there cannot stop.

As kombu is made, one entry of a Redis list that is no message ends the worker, and a key of a wrong type fails every
send. Here what cannot be read is dropped with a warning, and keys of a wrong type go: everything in Redis is
disposable, and a lost message is one tick's.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from amqp.exceptions import MessageNacked
from celery.app.amqp import AMQP
from kombu import Connection as _Connection
from kombu import Queue
from kombu.transport import redis as kombu_redis
from kombu.utils.objects import cached_property
from redis.exceptions import ResponseError

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line

BROADCAST_PATIENCE = 1.0  # seconds; what is read has been announced, so as a rule nobody waits at all
_ATTEMPTS = 3
_BINDING = 3  # parts: routing key, pattern, queue
GARBLED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)

log = logger(__name__)


class QoS(kombu_redis.QoS):
    """Notes what is not acknowledged yet, in keys that may have been spoilt meanwhile."""

    def append(self, message: Any, delivery_tag: Any) -> None:
        """Note a message."""
        self._mended(lambda: kombu_redis.QoS.append(self, message, delivery_tag))

    def ack(self, delivery_tag: Any) -> None:
        """Forget a message."""
        self._mended(lambda: kombu_redis.QoS.ack(self, delivery_tag))

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Forget a message, or put it back."""
        self._mended(lambda: kombu_redis.QoS.reject(self, delivery_tag, requeue))

    def restore_visible(self, *arguments: Any, **named: Any) -> None:
        """Put back what a dead worker had; what is there may be forged."""
        try:
            self._mended(lambda: kombu_redis.QoS.restore_visible(self, *arguments, **named))
        except GARBLED as error:
            log.warning("unacknowledged messages that are none were dropped", error=one_line(error))
            with self.channel.conn_or_acquire() as client:
                client.delete(self.unacked_key, self.unacked_index_key)

    def _mended(self, act: Callable[[], Any]) -> Any:
        for _ in range(_ATTEMPTS):  # it may be spoilt again as soon as it was mended
            try:
                return act()
            except ResponseError as error:
                self.channel.drop_spoilt_keys(error)
        log.warning("a message was not noted as it should be: its keys are spoilt again and again")
        return None


class Channel(kombu_redis.Channel):
    """kombu's channel, which drops what is no message."""

    QoS = QoS

    @cached_property
    def subclient(self) -> Any:
        """The connection that broadcasts come by (`celery inspect`, Flower's control): no read from it lasts for ever.

        Since redis-py 8 such a read knows no time limit, not even the socket's. A worker whose connection breaks at
        that moment reads on from a new one that has nothing to say, and takes up no more jobs: seen when Redis failed
        over twice within seconds.
        """
        client = super().subclient
        client.parse_response = partial(client.parse_response, block=False, timeout=BROADCAST_PATIENCE)
        return client

    def drop_spoilt_keys(self, error: ResponseError, *queues: str) -> None:
        """Delete those of our keys that have a type which we never write.

        :raises ResponseError: the one given, if it is about something else.
        """
        if "WRONGTYPE" not in str(error):
            raise error
        wanted = {self.unacked_key: b"hash", self.unacked_index_key: b"zset", self.unacked_mutex_key: b"string"}
        names = {*self.active_queues, *queues, *(queue for queue, _, _ in self.state.bindings)}
        wanted |= {self._q_for_pri(queue, step): b"list" for queue in names for step in self.priority_steps}
        with self.conn_or_acquire() as client:
            for key, kind in wanted.items():
                # `TYPE` is not among the commands that kombu prefixes
                found = client.type(f"{self.global_keyprefix or ''}{key}")
                if found not in {kind, b"none"}:
                    log.warning("a key of a wrong type was deleted", key=key, type=found)
                    client.delete(key)

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        """Return the bindings of an exchange: those that are some."""
        try:
            found = super().get_table(exchange)
        except (ResponseError, UnicodeDecodeError) as error:
            self._drop_bindings(exchange, error)
            return []
        return [row for row in found if len(row) == _BINDING]

    def bind_again(self, queue: str) -> None:
        """Write the bindings of a queue once more: Redis may have lost them, and kombu binds once a process."""
        for exchange, routing_key, arguments in self.state.queue_bindings(queue):
            self._queue_bind(exchange, *self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments))

    def _brpop_read(self, **options: Any) -> Any:
        before = set(self.qos._delivered)
        try:
            return super()._brpop_read(**options)
        except ResponseError as error:
            self.drop_spoilt_keys(error)
        except GARBLED as error:
            log.warning("what is no message was dropped", error=one_line(error))
        for delivery_tag in set(self.qos._delivered) - before:  # it would take up a place for ever
            self.qos.ack(delivery_tag)
        return True

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        try:
            super()._put(queue, message, **options)
        except ResponseError as error:
            self.drop_spoilt_keys(error, queue)
            super()._put(queue, message, **options)

    def _queue_bind(self, exchange: str, *names: Any) -> None:
        self._with_bindings(exchange, lambda: super(Channel, self)._queue_bind(exchange, *names))

    def _delete(self, queue: str, exchange: str, *names: Any, **options: Any) -> None:
        self._with_bindings(exchange, lambda: super(Channel, self)._delete(queue, exchange, *names, **options))

    def _with_bindings(self, exchange: str, act: Callable[[], None]) -> None:
        try:
            act()
        except ResponseError as error:
            self._drop_bindings(exchange, error)
            act()

    def _drop_bindings(self, exchange: str, error: Exception) -> None:
        """Delete the bindings of an exchange that are spoilt; they are made again by those who need them.

        :raises ResponseError: the one given, if it is about something else.
        """
        if isinstance(error, ResponseError) and "WRONGTYPE" not in str(error):
            raise error
        log.warning("bindings of a wrong type were deleted", exchange=exchange)
        with self.conn_or_acquire() as client:
            client.delete(self.keyprefix_queue % exchange, self.keyprefix_binding_permanent % exchange)


class Connection(_Connection):
    """kombu's connection, with our channel on Redis.

    A Redis that says no for a while (read-only after a failover, out of memory) is one to connect to again, and no
    reason for a worker to end.
    """

    @cached_property
    def connection_errors(self) -> tuple[type[Exception], ...]:
        """Return the errors after which to connect again."""
        errors: tuple[type[Exception], ...] = super().connection_errors
        return (*errors, ResponseError) if issubclass(self.get_transport_cls(), kombu_redis.Transport) else errors

    def create_transport(self) -> Any:
        """Make the transport."""
        transport = super().create_transport()
        if isinstance(transport, kombu_redis.Transport):
            transport.Channel = Channel
        return transport


def bind_again(channel: Any, queue: Queue) -> None:
    """Bind a queue that is bound, where the broker may have lost that."""
    if isinstance(channel, Channel):
        channel.bind_again(queue.name)


def drop(connection: _Connection) -> None:
    """Let a connection go that failed. RabbitMQ is not told: what hangs would not answer a goodbye."""
    with suppress(Exception):
        if connection.transport.driver_type == "amqp":
            connection.collect()
        else:
            connection.release()


def refusal(connection: _Connection, error: BaseException) -> BaseException | None:
    """Return why RabbitMQ refused one message, where an error means that; None, where it means the broker itself.

    Redis refuses a message only when it takes none at all.
    """
    cause = error.__cause__ or error
    is_amqp = connection.transport.driver_type == "amqp"
    return cause if is_amqp and isinstance(cause, (*connection.channel_errors, MessageNacked)) else None


class Amqp(AMQP):
    """Celery's way to the broker, with our connection."""

    Connection = Connection
