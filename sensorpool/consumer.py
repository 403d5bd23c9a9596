"""The worker's consumer, which what somebody else sent cannot stop.

As Celery is made, a message with a header of a wrong type ends the worker. Here it is dropped with a warning.
"""

from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer
from kombu.exceptions import OperationalError

from sensorpool.broker import one_line
from sensorpool.logs import logger

log = logger(__name__)


class SturdyConsumer(Consumer):
    """Celery's consumer, which drops messages that it chokes on."""

    def create_task_handler(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Return what takes a message."""
        handle = super().create_task_handler(*arguments, **named)
        passed_on = (*self.connection_errors, OperationalError, OSError)

        def on_task_received(message: Any) -> Any:
            try:
                return handle(message)
            except passed_on:
                raise
            except Exception as error:
                log.warning("a message that is no job was dropped", error=one_line(error))
                message.reject()
            return None

        return on_task_received
