"""What the probes of a metrics port ask: whether this process gets on, and whether it does work."""

from collections.abc import Callable, Mapping
from typing import Any

from sensorpool.instrumentation import alive
from sensorpool.service.presence import Presence
from sensorpool.worker.observer import Observer

_STUCK = "the main loop of this process does not come round"


def alive_problems() -> list[str]:
    """Return why this process should be restarted: as `health --self` of this process alone."""
    return [] if alive.gets_on() else [_STUCK]


class Readiness:
    """Whether a worker does work. It asks no server: what the worker saw of them in the last seconds counts.

    :param consumer: Celery's, whose connection is the one that takes jobs; None: the broker is this process's memory.
    :param is_ending: whether the worker was told to end.
    """

    def __init__(
        self, presence: Presence | None, observer: Observer, consumer: Any, is_ending: Callable[[], bool]
    ) -> None:
        self._presence = presence
        self._observer = observer
        self._consumer = consumer
        self._is_ending = is_ending

    def problems(self) -> list[str]:
        """Return a line for each reason why no work gets done here."""
        if self._is_ending():
            return ["this worker was told to end"]
        servers: Mapping[str, str | None] = self._observer.servers()
        found = [why for why in servers.values() if why]
        if not servers:
            found.append("the servers have not been asked yet")
        if self._presence is not None and not self._presence.is_kept:
            found.append("this worker is not in the roster")
        if self._consumer is not None and not _is_connected(self._consumer):
            found.append("this worker has no connection to the broker")
        return [*found, *alive_problems()]


def _is_connected(consumer: Any) -> bool:
    connection = getattr(consumer, "connection", None)
    return connection is not None and bool(connection.connected)
