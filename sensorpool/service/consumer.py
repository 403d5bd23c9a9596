"""The worker's consumer, which survives malformed messages.

In plain Celery, a message with a header of a wrong type ends the worker. This consumer drops it with a warning.
"""

from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer
from kombu.exceptions import OperationalError

from sensorpool.instrumentation import alive
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.publish.broker import GARBLED, wait_long
from sensorpool.service.dead_children import look_again

_ROUND = 10.0  # seconds; each wake-up of an idle process costs milliseconds of CPU
_HEARTBEAT = 5.0  # seconds between two of the events by which Flower tells that a worker lives; Celery's own are 2 s

log = logger(__name__)


class SturdyConsumer(Consumer):
    """Celery's consumer, which drops messages that it cannot handle.

    It has no mingle and no gossip: they tell workers of revoked tasks and of each other, which this pool does not need,
    cost a second at every connection, and a forged answer to them ends the worker.
    """

    connection_errors: tuple[type[Exception], ...]
    _round: Any = None  # the timer of `alive.come_round`

    def __init__(self, *arguments: Any, worker_options: dict[str, Any] | None = None, **named: Any) -> None:
        options = (worker_options or {}) | {"without_mingle": True, "without_gossip": True}
        options["heartbeat_interval"] = options.get("heartbeat_interval") or _HEARTBEAT
        super().__init__(*arguments, worker_options=options, **named)
        self._lost = (*self.connection_errors, OperationalError, OSError)
        # an unforeseen malformed message costs a connection, and not the worker
        self.connection_errors = (*self.connection_errors, *GARBLED)

    def start(self) -> None:
        """Take jobs from now on; the children have been started."""
        alive.keep()
        super().start()

    def connect(self) -> Any:
        """Connect to the broker; an idle worker asks it less often than Celery's own does."""
        connection = super().connect()
        wait_long(connection, self.hub)
        return connection

    def register_with_event_loop(self, hub: Any) -> None:
        """Set what the event loop does now and then: at each of its starts, for a lost connection clears all timers."""
        super().register_with_event_loop(hub)
        look_again(self.pool, hub)
        runtime = getattr(self.app, "sensorpool_runtime", None)
        if runtime is not None and not runtime.is_one_process:  # there, the main thread comes round by itself
            alive.come_round()
            if self._round is not None:
                self._round.cancel()
            self._round = hub.call_repeatedly(_ROUND, alive.come_round)

    def add_task_queue(self, queue: str, *arguments: Any, **options: Any) -> None:
        """Take jobs from a queue (``add_consumer`` of remote control), also after the next loss of the connection.

        Celery does not note a queue again that ``cancel_consumer`` has struck out: it is taken up on this connection
        only, and is missing from the names that `Presence` enters.
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
