"""Listen to results: a queue on the results exchange, and the messages that come to it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from kombu import Connection, Consumer, Queue, binding
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import error_text, hide_password
from sensorpool.publish import broker, wire

UNREAD = 1_000  # messages after which the queue of a listener counts as abandoned
_EXPIRES = 600.0  # seconds without a consumer
_LONGEST_PAUSE = 5  # seconds between two attempts of a listener at a broker that is away

log = logger(__name__)


@contextmanager
def listen(
    settings: Settings,
    dag_id: str = "#",
    until: Callable[[], bool] = lambda: False,
    pool_id: Callable[[], str | None] = lambda: None,
) -> Iterator[Iterator[dict[str, Any]]]:
    """Listen to results: within this context, iterate over the bodies of the messages.

    The iteration goes on after an outage of the broker; results that were published meanwhile are not heard.

    :param dag_id: the DAG whose results are wanted; default: all results.
    :param until: is called every second; the iteration ends once it returns true.
    :param pool_id: returns the pool whose results are wanted; results of another pool on the broker are dropped.
    :raises Unreachable: when the broker does not answer at the first connection.
    """
    listener = _Listener(settings, dag_id, pool_id)
    listener.connect()
    try:
        yield listener.bodies(until)
    finally:
        listener.close()


def queue_of_listener(settings: Settings, dag_id: str = "#") -> Queue:
    """Return a new queue for the results of a DAG, or of all; it is not declared yet."""
    exchange = broker.results_exchange(settings)
    keys = [dag_id] if dag_id == "#" else [wire.routing_key(dag_id), wire.MIXED]
    return Queue(
        f"{exchange.name}.{uuid4().hex}",
        bindings=[binding(exchange, routing_key=key) for key in keys],
        durable=False,
        auto_delete=True,
        expires=_EXPIRES,
        max_length=UNREAD,
    )


def drop_abandoned(channel: Any, exchange: str) -> int:
    """Delete the queues of an exchange that hold more than a listener may leave unread; return how many.

    Redis expires no queue of a listener that is gone, because messages still come to it.
    """
    if not hasattr(channel, "client") or not hasattr(channel, "get_table"):
        return 0  # a broker that expires queues by itself
    try:
        bindings = channel.get_table(exchange)
    except Exception:
        return 0  # no queue is bound
    abandoned = {queue for queue in {queue for _, _, queue in bindings} if channel._size(queue) > UNREAD}
    for routing_key, pattern, queue in bindings:
        if queue in abandoned:  # not by `queue_delete`, which knows only the bindings of this process
            channel._delete(queue, exchange, routing_key, pattern)
    return len(abandoned)


class _Listener:
    """A queue on the results exchange, for one listener."""

    def __init__(self, settings: Settings, dag_id: str, pool_id: Callable[[], str | None]) -> None:
        self._settings, self._dag_id, self._pool_id = settings, dag_id, pool_id
        self._queue = queue_of_listener(settings, dag_id)
        self._inbox: list[dict[str, Any]] = []
        self._connection: Connection | None = None

    def connect(self) -> None:
        """Connect, and bind the queue.

        :raises Unreachable: when the broker does not answer.
        """
        url = self._settings.broker
        connection = broker.connection(url, self._settings.namespace)
        consumer = {"callbacks": [self._receive], "on_decode_error": _drop, "accept": ["json"]}
        try:
            Consumer(connection, [self._queue], **consumer).consume()
        except _failures(connection) as error:
            broker.drop(connection)
            where = hide_password(url)
            raise Unreachable(f"cannot listen: the broker {where} does not answer: {error_text(error)}") from error
        self._connection = connection

    def bodies(self, until: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Iterate over the bodies of the messages."""
        pause = 0
        while not until():
            while self._inbox:
                yield self._inbox.pop(0)
            try:
                if self._connection is None:
                    self.connect()
                    log.info("results are heard again; results that were published meanwhile are not")
                self._drain()
                pause = 0
            except Unreachable:
                pause = min(pause + 1, _LONGEST_PAUSE)
                for _ in range(pause):
                    if until():
                        return
                    time.sleep(1)

    def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            broker.drop(connection)

    def _drain(self) -> None:
        """Receive the messages of one second.

        :raises Unreachable: when the connection breaks.
        """
        connection = self._connection
        assert connection is not None
        try:
            connection.drain_events(timeout=1)
        except TimeoutError:
            return
        except Exception as error:  # what kombu raises for an entry that is no message is of many kinds
            log.warning("no results are heard for a while", error=error_text(error))
            self.close()
            raise Unreachable(error_text(error)) from error

    def _receive(self, body: Any, message: Any) -> None:
        message.ack()
        if wire.is_of_another_pool((message.headers or {}).get(wire.POOL), self._pool_id()):
            log.debug("results of another pool were dropped")
            return
        settled = body.get("settled") if isinstance(body, dict) else None
        # a message can be forged: an item that is no result is dropped
        settled = [each for each in settled if _is_result(each)] if isinstance(settled, list) else []
        if self._dag_id != "#":
            settled = [each for each in settled if each["dag_id"] == self._dag_id]
        if settled:
            self._inbox.append({"settled": settled})


def _failures(connection: Connection) -> tuple[type[Exception], ...]:
    """Return the errors that mean that a broker does not answer."""
    return (OperationalError, OSError, RedisError, *connection.connection_errors, *connection.channel_errors)


def _drop(message: Any, error: Exception) -> None:
    log.warning("a malformed result message was dropped", error=error_text(error))
    message.reject()


def _is_result(each: Any) -> bool:
    return isinstance(each, dict) and type(each.get("id")) is int and isinstance(each.get("dag_id"), str)
