"""A connection to the broker that survives whatever other programs write into the broker's Redis.

With plain kombu, one list entry in Redis that is no message ends the worker, and a key of a wrong type fails every
send. This connection drops an entry that cannot be read, with a warning, and deletes keys of a wrong type: everything
in Redis is disposable, and a lost message costs one tick.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from amqp.exceptions import MessageNacked
from celery.app.amqp import AMQP
from kombu import Connection as _Connection
from kombu import Queue
from kombu.transport import pyamqp, virtual
from kombu.transport import redis as kombu_redis
from kombu.utils.objects import cached_property
from redis.exceptions import ResponseError

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line

_IDLE_WAIT = 2  # seconds that one question for a job waits in Redis; a worker that ends waits for the answer
_BINDINGS_EVERY = 20.0  # seconds between two looks whether the bindings of broadcasts expire
BROADCAST_PATIENCE = 1.0  # seconds; a broadcast is announced before it is read, so a read hardly ever waits
_ATTEMPTS = 3
_BINDING = 3  # parts: routing key, pattern, queue
GARBLED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)

log = logger(__name__)


class QoS(kombu_redis.QoS):
    """Notes unacknowledged messages, in keys that another program may spoil."""

    def append(self, message: Any, delivery_tag: Any) -> None:
        """Note a message."""
        self._mended(lambda: kombu_redis.QoS.append(self, message, delivery_tag))

    def ack(self, delivery_tag: Any) -> None:
        """Forget a message."""
        with self._forgotten(delivery_tag):
            self._mended(lambda: kombu_redis.QoS.ack(self, delivery_tag))

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Forget a message, or put it back."""
        with self._forgotten(delivery_tag):
            self._mended(lambda: kombu_redis.QoS.reject(self, delivery_tag, requeue))

    def restore_visible(self, *arguments: Any, **named: Any) -> None:
        """Put back the messages of a dead worker; entries that are no messages are dropped."""
        try:
            self._mended(lambda: kombu_redis.QoS.restore_visible(self, *arguments, **named))
        except GARBLED as error:
            log.warning("malformed unacknowledged messages were dropped", error=one_line(error))
            with self.channel.conn_or_acquire() as client:
                client.delete(self.unacked_key, self.unacked_index_key)

    @contextmanager
    def _forgotten(self, delivery_tag: Any) -> Iterator[None]:
        """Free the message's place in the prefetch, also when Redis is away.

        kombu keeps the place and Celery only logs the error. A worker whose places are all taken reads from Redis no
        more, so that it never notices the loss of the connection either.
        """
        try:
            yield
        finally:
            virtual.QoS.ack(self, delivery_tag)

    def _mended(self, act: Callable[[], Any]) -> Any:
        for _ in range(_ATTEMPTS):  # a key may be spoilt again as soon as it is mended
            try:
                return act()
            except ResponseError as error:
                self.channel.drop_spoilt_keys(error)
        log.warning("an unacknowledged message was not noted: other programs spoil its keys again and again")
        return None


class Channel(kombu_redis.Channel):
    """kombu's channel, which drops entries that are no messages."""

    QoS = QoS
    _made: tuple[Any, Any] | None = None  # a pool of connections, and its client

    @cached_property
    def subclient(self) -> Any:
        """The connection for broadcasts (`celery inspect`, Flower's control), with a time limit for each read.

        Since redis-py 8 such a read has no time limit, not even the socket's. If the connection breaks at that moment,
        the worker reads from a new connection that stays silent, and takes up no more jobs. This was seen when Redis
        failed over twice within seconds.
        """
        client = super().subclient
        client.parse_response = partial(client.parse_response, block=False, timeout=BROADCAST_PATIENCE)
        return client

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Return the client of the pool of connections: kombu makes one for each command, which costs as much."""
        if asynchronous:
            return super()._create_client(asynchronous=True)
        pool, made = self._made or (None, None)
        if pool is not self.pool:
            pool, made = self._made = (self.pool, super()._create_client())
        return made

    def drop_spoilt_keys(self, error: ResponseError, *queues: str) -> None:
        """Delete our keys that have a type which we never write.

        :raises ResponseError: the given error, if it has another cause.
        """
        if "WRONGTYPE" not in str(error):
            raise error
        wanted = {self.unacked_key: b"hash", self.unacked_index_key: b"zset", self.unacked_mutex_key: b"string"}
        names = {*self.active_queues, *queues, *(queue for queue, _, _ in self.state.bindings)}
        wanted |= {self._q_for_pri(queue, step): b"list" for queue in names for step in self.priority_steps}
        with self.conn_or_acquire() as client:
            for key, kind in wanted.items():
                # kombu does not add the key prefix to `TYPE`
                actual = client.type(f"{self.global_keyprefix or ''}{key}")
                if actual not in {kind, b"none"}:
                    log.warning("a key of a wrong type was deleted", key=key, type=actual)
                    client.delete(key)

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        """Return the well-formed bindings of an exchange: routing key, pattern, queue."""
        try:
            rows = super().get_table(exchange)
        except (ResponseError, UnicodeDecodeError) as error:
            self._drop_bindings(exchange, error)
            return []
        return [row for row in rows if len(row) == _BINDING]

    def bind_again(self, queue: str) -> None:
        """Write the bindings of a queue again: Redis may have lost them, and kombu writes them once in a process."""
        for exchange, routing_key, arguments in self.state.queue_bindings(queue):
            self._queue_bind(exchange, *self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments))

    def _brpop_read(self, **options: Any) -> Any:
        before = set(self.qos._delivered)
        try:
            return super()._brpop_read(**options)
        except ResponseError as error:
            self.drop_spoilt_keys(error)
        except GARBLED as error:
            log.warning("a malformed message was dropped", error=one_line(error))
        for delivery_tag in set(self.qos._delivered) - before:  # it would take up a place of the prefetch for ever
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
        """Delete the spoilt bindings of an exchange; each listener writes its own again.

        :raises ResponseError: the given error, if it has another cause.
        """
        if isinstance(error, ResponseError) and "WRONGTYPE" not in str(error):
            raise error
        log.warning("bindings of a wrong type were deleted", exchange=exchange)
        with self.conn_or_acquire() as client:
            client.delete(self.keyprefix_queue % exchange, self.keyprefix_binding_permanent % exchange)


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """The same, to the Redis that Sentinels name."""


class Connection(_Connection):
    """kombu's connection, with our channel on Redis.

    When Redis refuses commands for a while (read-only after a failover, out of memory), a worker connects again; it
    does not end.
    """

    @cached_property
    def connection_errors(self) -> tuple[type[Exception], ...]:
        """The errors after which to connect again."""
        errors: tuple[type[Exception], ...] = super().connection_errors
        return (*errors, ResponseError) if issubclass(self.get_transport_cls(), kombu_redis.Transport) else errors

    @property
    def qos_semantics_matches_spec(self) -> bool:
        """Whether a prefetch count is set for each consumer, and not for a channel: quorum queues refuse the latter.

        Where a virtual host makes quorum queues by default, the queue of jobs is one. A worker has one consumer.
        """
        return True

    def info(self) -> dict[str, Any]:
        """Return what `celery inspect stats` and Flower show of it: nothing that may have another password in it."""
        told: dict[str, Any] = super().info()
        return told | {"transport_options": {}, "alternates": []}

    def create_transport(self) -> Any:
        """Make the transport, with our channel on Redis; RabbitMQ's says when it blocks who sends."""
        transport = super().create_transport()
        if isinstance(transport, kombu_redis.Transport):
            by_sentinels = isinstance(transport, kombu_redis.SentinelTransport)
            transport.Channel = SentinelChannel if by_sentinels else Channel
        elif isinstance(transport, pyamqp.Transport):
            transport.Connection = partial(transport.Connection, on_blocked=_blocked, on_unblocked=_unblocked)
        return transport


def _blocked(_: str) -> None:
    log.warning(
        "RabbitMQ blocks all who send: nothing is poked until its alarm ends; give it memory or disk space "
        "(`rabbitmq-diagnostics alarms`)"
    )


def _unblocked() -> None:
    log.info("RabbitMQ takes messages again")


def wait_long(connection: _Connection, hub: Any = None) -> None:
    """Have the questions for messages wait longer in Redis: each wakes an idle process. No message waits for it.

    :param hub: the event loop; on it kombu looks each second after what lasts twenty minutes.
    """
    transport = connection.transport
    if not isinstance(transport, kombu_redis.Transport):
        return
    if transport.polling_interval is None:
        transport.brpop_timeout = _IDLE_WAIT
        for channel in transport.channels:  # the first one is there already
            channel.brpop_timeout = _IDLE_WAIT
    cycle = transport.cycle
    timer = getattr(cycle, "_binding_expiry_tref", None)  # kombu 5.7 and later
    if hub is not None and timer is not None:
        timer.cancel()
        cycle._binding_expiry_tref = hub.call_repeatedly(_BINDINGS_EVERY, cycle.maybe_refresh_binding_expiry)


def bind_again(channel: Any, queue: Queue) -> None:
    """Write the bindings of a queue again, where the broker may have lost them."""
    if isinstance(channel, Channel):
        channel.bind_again(queue.name)


def drop(connection: _Connection) -> None:
    """Drop a connection that failed. RabbitMQ's is not closed properly: a broker that hangs would not answer."""
    with suppress(Exception):
        if connection.transport.driver_type == "amqp":
            connection.collect()
        else:
            connection.release()


def refusal(connection: _Connection, error: BaseException) -> BaseException | None:
    """Return why one message cannot be sent; None where the error concerns the broker itself.

    Redis never refuses a single message: it takes all or none. kombu counts a `KeyError` among the errors of a
    connection to Redis, but a message that cannot be encoded raises one too.
    """
    cause = error.__cause__ or error
    if isinstance(cause, GARBLED) and not isinstance(cause, OSError):
        return cause
    is_amqp = connection.transport.driver_type == "amqp"
    return cause if is_amqp and isinstance(cause, (*connection.channel_errors, MessageNacked)) else None


class Amqp(AMQP):
    """Celery's way to the broker, with our connection."""

    Connection = Connection
