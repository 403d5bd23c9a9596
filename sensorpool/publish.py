"""Publish: tell whoever waits, after the settle has committed. The message is a hint; the database is the truth.

Results go to the kombu topic exchange ``sensorpool.results``: one message for each flush, with the dag_id as routing
key or, where there is more than one, `MIXED`. Its body is ``{"settled": [{"id", "dag_id", "task_id", "run_id",
"map_index", "try_number", "state", "ending", "reason", "xcom_value"}, …]}``. ``on_settled`` signatures go to the user's
own queues, at least once.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu import Consumer, Exchange, Producer, Queue, binding
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from sensorpool import wire
from sensorpool.broker import Connection
from sensorpool.errors import Unreachable
from sensorpool.failpoint import failpoint
from sensorpool.logs import logger
from sensorpool.model import Flushed, Settled, ShardRange
from sensorpool.redaction import hide_password
from sensorpool.rows import read_json
from sensorpool.settings import Settings
from sensorpool.store import closing
from sensorpool.store.database import Database

LISTENER_LIMIT = 10_000  # messages that a listener may leave unread before its queue is taken for abandoned
LISTENER_EXPIRES = 600.0  # seconds without a consumer

RESULTS = Exchange(wire.RESULTS, type="topic", durable=True)
MIXED = "%"  # no dag_id is spelled so: a message for each of a hundred DAGs costs a hundred times as much
_RETRY = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2}

log = logger(__name__)


class Publisher:
    """Sends what this process has to say. Safe to share between threads; connections are made when first needed.

    :raises Unreachable: by every method that sends, when the broker does not answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._producer: Producer | None = None
        self._senders: dict[str, Celery] = {}

    def publish(self, settled: Sequence[Settled]) -> None:
        """Publish settled instances, and send their ``on_settled`` signatures."""
        dag_ids = {each.key.dag_id for each in settled}
        with self._sending("publish results"):
            self._results().publish(
                {"settled": [result_of(each) for each in settled]},
                routing_key=routing_key(dag_ids.pop()) if len(dag_ids) == 1 else MIXED,
                exchange=RESULTS,
                declare=[RESULTS],
                serializer="json",
                retry=True,
                retry_policy=_RETRY,
            )
        for each in settled:
            if each.on_settled is not None:
                self._call_back(each)

    def nudge(self, shard_range: ShardRange) -> None:
        """Have a range looked at now: somebody waits for something new."""
        with self._sending("send a job"):
            self._sender(prefixed=True).send_task(wire.POKE_SHARD, **wire.shard_message(shard_range))

    def drop_abandoned_listeners(self) -> int:
        """Delete the queues of listeners that went away without a word (Redis has no expiry for queues)."""
        dropped = 0
        with self._sending("look after listeners"), self._connection() as connection:
            channel = connection.default_channel
            if not hasattr(channel, "client") or not hasattr(channel, "get_table"):
                return 0  # a broker that expires queues by itself
            try:
                bindings = channel.get_table(wire.RESULTS)
            except Exception:
                return 0  # nobody listens
            for _, _, queue in bindings:
                if channel._size(queue) > LISTENER_LIMIT:
                    channel.queue_delete(queue)
                    dropped += 1
        return dropped

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._producer is not None:
                self._producer.connection.release()
                self._producer = None
            for sender in self._senders.values():
                sender.close()
            self._senders.clear()

    def _results(self) -> Producer:
        if self._producer is None:
            connection = self._connection()
            self._producer = Producer(connection, auto_declare=False)
        return self._producer

    def _connection(self) -> Connection:
        broker = self._settings.broker
        return Connection(wire.broker_url(broker), connect_timeout=5, transport_options=wire.transport_options(broker))

    def _sender(self, *, prefixed: bool) -> Celery:
        """Return a Celery application that only sends: to our workers, or without our key prefix to the user's."""
        url = self._settings.broker if prefixed else self._settings.on_settled_broker_url or self._settings.broker
        name = f"{url} {prefixed}"
        if name not in self._senders:
            sender = Celery("sensorpool-sender", set_as_current=False, amqp="sensorpool.broker:Amqp")
            sender.conf.update(wire.celery_settings(self._settings))
            sender.conf.update(
                broker_url=wire.broker_url(url),
                broker_transport_options=wire.transport_options(url, prefixed=prefixed),
            )
            self._senders[name] = sender
        return self._senders[name]

    def _call_back(self, settled: Settled) -> None:
        """Send an ``on_settled`` signature, with the result as its first argument unless it is immutable."""
        assert settled.on_settled is not None
        signature = read_json(settled.on_settled)
        if not isinstance(signature, dict) or signature.get("task") not in self._settings.on_settled_tasks:
            log.warning("an on_settled task is not allowed", task=_name(signature), instance_id=settled.id)
            return
        arguments = signature.get("args") or ()
        arguments = list(arguments) if isinstance(arguments, list | tuple) else []
        if not signature.get("immutable"):
            arguments.insert(0, result_of(settled))
        options = {
            name: value
            for name, value in _mapping(signature.get("options")).items()
            if name in wire.SIGNATURE_OPTIONS and value is not None
        }
        options.setdefault("queue", "celery")  # Celery's own default, not ours
        try:
            with self._sending("send an on_settled task"):
                self._sender(prefixed=False).send_task(
                    signature["task"],
                    args=arguments,
                    kwargs=_mapping(signature.get("kwargs")),
                    ignore_result=True,
                    **options,
                )
        except Unreachable:
            raise
        except Exception as error:  # somebody wrote it over; it must not stop the others
            log.warning(
                "an on_settled task cannot be sent", task=_name(signature), instance_id=settled.id, error=_text(error)
            )

    @contextmanager
    def _sending(self, what: str) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (OperationalError, OSError, RedisError) as error:
                self._producer = None
                broker = hide_password(self._settings.broker)
                raise Unreachable(f"cannot {what}: the broker {broker} does not answer: {_text(error)}") from error


@contextmanager
def listen(
    settings: Settings, dag_id: str = "#", until: Callable[[], bool] = lambda: False
) -> Iterator[Iterator[dict[str, Any]]]:
    """Listen to results: within this context, iterate over the bodies of the messages.

    :param dag_id: whose results, and no others; all, if it is left out.
    :param until: is asked every second; once it is true, the iteration ends.
    """
    keys = [dag_id] if dag_id == "#" else [routing_key(dag_id), MIXED]
    queue = Queue(
        f"{wire.RESULTS}.{uuid4().hex}",
        bindings=[binding(RESULTS, routing_key=key) for key in keys],
        durable=False,
        auto_delete=True,
        expires=LISTENER_EXPIRES,
        max_length=LISTENER_LIMIT,
    )
    broker = settings.broker
    inbox: list[dict[str, Any]] = []

    def receive(body: Any, message: Any) -> None:
        message.ack()
        settled = body.get("settled") if isinstance(body, dict) else None
        # a message can be forged: what does not look like ours is nobody's
        settled = [each for each in settled if _is_result(each)] if isinstance(settled, list) else []
        if dag_id != "#":
            settled = [each for each in settled if each["dag_id"] == dag_id]
        if settled:
            inbox.append({"settled": settled})

    def drop(message: Any, error: Exception) -> None:
        log.warning("what is no result was dropped", error=_text(error))
        message.reject()

    with (
        Connection(wire.broker_url(broker), transport_options=wire.transport_options(broker)) as connection,
        Consumer(connection, [queue], callbacks=[receive], on_decode_error=drop, accept=["json"]),
    ):

        def bodies() -> Iterator[dict[str, Any]]:
            while not until():
                while inbox:
                    yield inbox.pop(0)
                try:
                    connection.drain_events(timeout=1)
                except TimeoutError:
                    continue

        yield bodies()


def deliver(database: Database, publisher: Publisher, flushed: Flushed) -> bool:
    """Publish a flush and forget its outbox row; return whether it went out. What does not go now, rescue sends."""
    if flushed.outbox_id is None:
        return True
    outbox_id = flushed.outbox_id
    try:
        failpoint("publish.before")
        publisher.publish(flushed.settled)
        failpoint("publish.after")
        database.run(lambda connection: closing.published(connection, outbox_id))
    except Unreachable as error:
        log.warning("results are published later", error=str(error))
        return False
    return True


def routing_key(dag_id: str) -> str:
    """Spell a dag_id as one word of a routing key, of 255 bytes at most: dots and wildcards mean something there."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_~" else f"%{ord(c):02X}" for c in dag_id)[:255]


def result_of(settled: Settled) -> dict[str, Any]:
    """Say a settled instance as JSON."""
    key = settled.key
    return {
        "id": settled.id,
        "dag_id": key.dag_id,
        "task_id": key.task_id,
        "run_id": key.run_id,
        "map_index": key.map_index,
        "try_number": key.try_number,
        "state": str(settled.state),
        "ending": str(settled.ending),
        "reason": settled.reason,
        "xcom_value": None if settled.xcom_value is None else read_json(settled.xcom_value),
    }


def _is_result(each: Any) -> bool:
    return isinstance(each, dict) and type(each.get("id")) is int and isinstance(each.get("dag_id"), str)


def _name(signature: object) -> str:
    return str(signature.get("task"))[:200] if isinstance(signature, dict) else "(no signature)"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(error: BaseException) -> str:
    return hide_password(" ".join(str(error).split()))[:200] or type(error).__name__
