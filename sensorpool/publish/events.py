"""The events of workers, which Flower shows. None of them holds up the worker while the broker is away.

With plain Celery a heartbeat is sent again and again until the broker takes it. When it is what first meets a dead
broker, the worker says nothing of the loss, and no signal ends it.
"""

from collections import deque
from typing import Any

from celery.app.events import Events as _Events
from celery.events.dispatcher import EventDispatcher

from sensorpool.publish import wire

_KEPT = 1_000  # events of an outage


class Dispatcher(EventDispatcher):
    """Celery's dispatcher. What the broker does not take at the second attempt is sent after the next connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._outbound_buffer: deque[Any] = deque(maxlen=_KEPT)

    def _publish(self, *arguments: Any, retry_policy: dict[str, Any] | None = None, **named: Any) -> None:
        super()._publish(*arguments, retry_policy=retry_policy or wire.RETRY, **named)


class Events(_Events):
    """Celery's shortcuts to events, with our dispatcher."""

    dispatcher_cls = "sensorpool.publish.events:Dispatcher"
