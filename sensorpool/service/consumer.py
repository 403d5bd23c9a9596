"""The worker's consumer, which what somebody else sent cannot stop.

As Celery is made, a message with a header of a wrong type ends the worker. Here it is dropped with a warning.
"""

from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer
from kombu.exceptions import OperationalError

from sensorpool.instrumentation import alive
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.publish.broker import GARBLED

log = logger(__name__)


class SturdyConsumer(Consumer):
    """Celery's consumer, which drops messages that it chokes on.

    Without mingle and gossip: they tell workers of revoked tasks and of each other, which nobody here asks for, cost a
    second at every connection, and end the worker when somebody forges their answers.
    """

    connection_errors: tuple[type[Exception], ...]

    def __init__(self, *arguments: Any, worker_options: dict[str, Any] | None = None, **named: Any) -> None:
        options = (worker_options or {}) | {"without_mingle": True, "without_gossip": True}
        super().__init__(*arguments, worker_options=options, **named)
        self._lost = (*self.connection_errors, OperationalError, OSError)
        # what is garbled in a way that nobody thought of costs a connection, and not the worker
        self.connection_errors = (*self.connection_errors, *GARBLED)

    def start(self) -> None:
        """Take jobs, from now on; the children are there."""
        alive.keep()
        super().start()

    def create_task_handler(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Return what takes a message."""
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
