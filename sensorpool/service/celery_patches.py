"""All that is patched of Celery, kombu and billiard. All else is configured (`service.app`, `publish.wire`).

Each patch names the fault that it mends, as tried on Celery 5.6.3, kombu 5.7.0 and billiard 4.3.2, and what the fault
costs. The import of this module applies them, in the processes of worker and beat and before the forks.
"""

import itertools
from collections.abc import Callable
from typing import Any

import billiard.pool
from celery.worker.consumer import Consumer
from celery.worker.heartbeat import Heart
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.transport import redis, virtual

from sensorpool.instrumentation import alive
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line

_ROUND = 10.0  # seconds; each wake-up of an idle process costs milliseconds of CPU
_HEARTBEAT = 5.0  # seconds between two of the events by which Flower tells that a worker lives; Celery's own are 2 s
_NEVER = 2**39  # kilobytes
_GARBLED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)

log = logger(__name__)

# Fault: kombu keeps a message's place in the prefetch if its acknowledgement fails, and Celery only logs the error.
# Cost: a worker that acknowledges as many jobs as it has children while Redis is away reads from Redis no more. It
# never notices that its connection is lost. Measured: no job was taken in the minute after Redis was back, until the
# worker was started again (`test_lost_acks.py`).
_ack = redis.QoS.ack


def _ack_and_forget(qos: Any, delivery_tag: Any) -> None:
    try:
        _ack(qos, delivery_tag)
    finally:
        virtual.QoS.ack(qos, delivery_tag)


redis.QoS.ack = _ack_and_forget

# Fault: a heartbeat for Flower is sent again and again until the broker takes it.
# Cost: a worker whose heartbeat is the first to meet a dead broker hangs there. Measured: no line of the loss in 30 s,
# and no signal ends it (`test_lost_acks.py`). The event waits in the dispatcher's buffer instead, as all others do.
_send = Heart._send
Heart._send = lambda heart, event, **_: _send(heart, event, retry=False)

# Fault: ``celery inspect stats`` and Flower show the options of the broker's connection.
# Cost: where remote control is on, who may look at Flower sees the passwords of Sentinels and of further brokers
# (`test_sentinel.py`).
_info = Connection.info
Connection.info = lambda connection: _info(connection) | {"transport_options": {}, "alternates": []}

# Fault: SIGUSR1 raises an exception at any point of a job in a child.
# Cost: the groups between two steps of the job are lost until their next turn. A poke may send the signal to its own
# process (`test_signalled.py`). Jobs have a hard time limit instead, which is another signal.
billiard.pool.soft_timeout_sighandler = lambda *_: None


def replace_worn_children(worker: Any) -> Callable[[Callable[[str | None], bool]], None]:
    """Take the limits for the jobs and the memory of a child from a Celery worker that is being made.

    Fault: billiard replaces a child at these limits although pokes go on in it outside of jobs, and has no other way to
    replace a child between two jobs.
    Cost: a poke that takes longer than the child has jobs left never ends; a child in which threads hang, or memory ran
    out, goes on (`test_child_limits.py`, `test_exhaustion.py`).

    :returns: what a child calls at its start. It takes a function that decides after each job whether the child is to
        be replaced; it is called with the limit that the child has reached, or None.
    """
    most_jobs, most_memory = worker.max_tasks_per_child, worker.max_memory_per_child
    worker.max_tasks_per_child, worker.max_memory_per_child = None, _NEVER

    def begin_child(is_worn: Callable[[str | None], bool]) -> None:
        measure, jobs = billiard.pool.mem_rss, itertools.count(1)

        def ask() -> int:
            memory, done, limit = measure(), next(jobs), None
            if most_memory and memory > most_memory:
                limit = f"it has taken {memory:,} KB of memory, of {most_memory:,}"
            elif most_jobs and done >= most_jobs:
                limit = f"it has done {done:,} jobs"
            return _NEVER + 1 if is_worn(limit) else 1

        billiard.pool.mem_rss = ask
        billiard.pool.MAXMEM_USED_FMT = "the child is replaced"

    return begin_child


class SturdyConsumer(Consumer):
    """Celery's consumer (the setting ``worker_consumer``), which outlives messages that are no jobs.

    Fault: a message with a header of a wrong type, or an entry of the queue that is no message, ends the worker.
    Cost: RabbitMQ delivers such a message again, so it ends each worker in turn. Measured: both workers of a pool ended
    with "Unrecoverable error: TypeError" (`test_open_redis.py`).

    It has no mingle and no gossip, for which Celery has no setting: they cost a second at each connection, and listen
    to all events of all workers. Its timer tells that the main loop comes round.
    """

    connection_errors: tuple[type[Exception], ...]
    channel_errors: tuple[type[Exception], ...]
    _round: Any = None

    def __init__(self, *arguments: Any, worker_options: dict[str, Any] | None = None, **named: Any) -> None:
        options = (worker_options or {}) | {"without_mingle": True, "without_gossip": True}
        options["heartbeat_interval"] = options.get("heartbeat_interval") or _HEARTBEAT
        super().__init__(*arguments, worker_options=options, **named)
        self._lost = (*self.connection_errors, *self.channel_errors, OperationalError, OSError)
        self.connection_errors = (*self.connection_errors, *_GARBLED)  # an entry that is no message costs a connection

    def start(self) -> None:
        """Take jobs from now on; the children have been started."""
        alive.keep()
        super().start()

    def register_with_event_loop(self, hub: Any) -> None:
        """Set the timer: at each start of the event loop, for the loss of a connection clears all timers."""
        super().register_with_event_loop(hub)
        runtime = getattr(self.app, "sensorpool_runtime", None)
        if runtime is not None and not runtime.is_one_process:  # there, the main thread comes round by itself
            alive.come_round()
            if self._round is not None:
                self._round.cancel()
            self._round = hub.call_repeatedly(_ROUND, runtime.come_round)

    def add_task_queue(self, queue: str, *arguments: Any, **options: Any) -> None:
        """Take jobs from a queue (``add_consumer`` of remote control), also after the next loss of the connection.

        Fault: Celery does not note a queue again that ``cancel_consumer`` has struck out. Cost: after the next loss of
        its connection the worker takes no jobs (`test_paused_worker.py`).
        """
        super().add_task_queue(queue, *arguments, **options)
        queues = self.app.amqp.queues
        if queue not in queues.consume_from:
            queues.select([*queues.consume_from, queue])

    def create_task_handler(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Return the function that takes a message."""
        handle = super().create_task_handler(*arguments, **named)

        def on_task_received(message: Any) -> Any:
            try:
                return handle(message)
            except self._lost:
                raise
            except Exception as error:
                log.warning("a message that is no job was dropped", error=one_line(error))
                message.reject()
            return None

        return on_task_received
