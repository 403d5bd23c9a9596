"""Publish: tell the waiters, after the settle has committed. The message is a hint; the database is the truth.

Results go to the kombu topic exchange ``sensorpool.results``: one message for each flush (several if it is large),
with the dag_id as routing key or, for several DAGs, `wire.MIXED`. Its body is ``{"settled": [{"id", "dag_id",
"task_id", "run_id", "map_index", "try_number", "state", "ending", "reason", "xcom_value"}, …]}``; a value that is too
large for a message is left out, and ``xcom_value_left_out`` says so.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kombu import Connection, Producer
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation import forks
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import error_text, hide_password
from sensorpool.model.values import Settled, ShardRange
from sensorpool.publish import broker, listener, wire
from sensorpool.publish.application import Application, celery_settings
from sensorpool.publish.messages import bodies_of

log = logger(__name__)


class Publisher:
    """Sends the results and jobs of this process. Safe to share between threads; connections are made at first use.

    :param pool_id: returns the pool that sends the messages, or None while it is not known.
    :raises Unreachable: by every method that sends, when the broker does not answer.
    :raises Refused: by every method that sends, when the broker does not take this message.
    """

    def __init__(self, settings: Settings, pool_id: Callable[[], str | None] = lambda: None) -> None:
        self._settings = settings
        self._pool_id = pool_id
        self._results_exchange = broker.results_exchange(settings)
        self._lock = threading.RLock()
        self._made: tuple[Connection, Producer] | None = None
        self._sender: Application | None = None
        forks.note(self)

    def begin_anew(self) -> None:
        """Leave the connection to the parent process."""
        self._lock = threading.RLock()
        self._of_parents, self._made, self._sender = (self._made, self._sender), None, None

    def publish(self, settled: Sequence[Settled]) -> None:
        """Publish settled instances, in messages of bounded size."""
        headers = wire.headers(self._pool_id())
        for body, dag_ids in bodies_of(settled):
            with self._sending("publish results") as producer:
                producer.publish(
                    body,
                    routing_key=wire.routing_key(dag_ids.pop()) if len(dag_ids) == 1 else wire.MIXED,
                    exchange=self._results_exchange,
                    declare=[self._results_exchange],
                    headers=headers,
                    content_type="application/json",
                    content_encoding="utf-8",
                    retry=True,
                    retry_policy=wire.RETRY,
                    **wire.publish_options(self._settings.broker),
                )

    def nudge(self, shard_range: ShardRange, *, again: bool = False) -> None:
        """Send a job for a range now: a new group was registered.

        :param again: whether the job was sent on once already; then no worker sends it on again.
        """
        message = wire.shard_message(shard_range, wire.queue_of(self._settings), self._pool_id())
        if again:
            message["headers"] |= {wire.AGAIN: True}
        message |= wire.publish_options(self._settings.broker)
        with self._sending("send a job") as producer:
            if self._sender is None:
                self._sender = Application("sensorpool-sender", celery_settings(self._settings))
            self._sender.send_task(wire.POKE_SHARD, producer=producer, **message)

    def drop_abandoned_listeners(self) -> int:
        """Delete the queues of listeners that are gone, where Redis does not expire them; return how many."""
        try:
            with self._connection() as connection:
                return listener.drop_abandoned(connection.default_channel, self._results_exchange.name)
        except (OperationalError, OSError, RedisError) as error:
            raise self._unreachable("look after listeners", error) from error

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._forget()
            if self._sender is not None:
                self._sender.close()
                self._sender = None

    def _connection(self) -> Connection:
        return broker.connection(self._settings.broker, self._settings.namespace)

    @contextmanager
    def _sending(self, what: str) -> Iterator[Producer]:
        with self._lock:
            try:
                if self._made is None:
                    connection = self._connection()
                    self._made = connection, Producer(connection, auto_declare=False)
                connection, producer = self._made
                with connection._reraise_as_library_errors():
                    yield producer
            except Exception as error:  # kombu leaves some refusals as the driver raises them
                refused = None if self._made is None else broker.refusal(self._made[0], error)
                self._forget()  # a channel that raised may still hold the answer to the refused message
                if refused is not None:
                    raise Refused(f"cannot {what}: the broker does not take it: {error_text(refused)}") from error
                if isinstance(error, OperationalError | OSError | RedisError):
                    raise self._unreachable(what, error) from error
                raise
            except BaseException:
                self._forget()
                raise

    def _forget(self) -> None:
        if self._made is not None:
            connection, _ = self._made
            self._made = None
            broker.drop(connection)

    def _unreachable(self, what: str, error: Exception) -> Unreachable:
        where = hide_password(self._settings.broker)
        return Unreachable(f"cannot {what}: the broker {where} does not answer: {error_text(error)}")
