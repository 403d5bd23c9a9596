"""The Redis transport of Celery, without a read that may last for ever.

Since redis-py 8, waiting for a broadcast (`celery inspect`, Flower's control) knows no time limit, not even the
socket's. A worker whose connection breaks at that moment reads on from a new one that has nothing to say, and takes up
no more jobs: seen when Redis failed over twice within seconds.
"""

from functools import partial
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils.objects import cached_property

PATIENCE = 1.0  # seconds; what is read has been announced, so as a rule nobody waits at all


class Channel(redis.Channel):  # type: ignore[misc]  # kombu has no types
    """Reads broadcasts with a time limit."""

    @cached_property  # type: ignore[untyped-decorator]
    def subclient(self) -> Any:
        """The connection that broadcasts come by."""
        client = super().subclient
        client.parse_response = partial(client.parse_response, block=False, timeout=PATIENCE)
        return client


class Transport(redis.Transport):  # type: ignore[misc]
    """The transport of such channels."""

    Channel = Channel


def install() -> None:
    """Have this process use it for Redis: by the name that URLs give it, for kombu derives TLS from that."""
    for name in ("redis", "rediss"):
        TRANSPORT_ALIASES[name] = f"{__name__}:{Transport.__name__}"
