"""What is said on the broker: the names of tasks, queue and exchange, and how a connection behaves."""

from typing import Any

from sensorpool.model import ShardRange
from sensorpool.settings import MEMORY, Settings

POKE_SHARD = "sensorpool.poke_shard"
RESCUE = "sensorpool.rescue"
QUEUE = "sensorpool"
RESULTS = "sensorpool.results"
KEY_PREFIX = "sensorpool:"
EXPIRES = 7_200.0  # seconds; by the clocks of two hosts, which may be apart, and beat bounds what waits in the queue
SIGNATURE_OPTIONS = frozenset({"queue", "routing_key", "exchange", "priority", "expires", "countdown"})
"""What of a signature's options an ``on_settled`` task is sent with."""


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Return the Celery settings that sender and worker share: JSON only, no results, bounded waits."""
    return {
        "broker_url": broker_url(settings.broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_timeout": 5,
        "broker_connection_max_retries": None,  # however long the broker is away: Celery's default ends the worker
        "broker_transport_options": transport_options(settings.broker),
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_default_queue": QUEUE,
        "task_create_missing_queues": True,
        "task_publish_retry_policy": {"max_retries": 2, "interval_start": 0, "interval_step": 0.2},
        "enable_utc": True,
    }


def broker_url(url: str) -> str:
    """Return the URL as kombu wants it.

    Without a host it warns and takes one anyway. And of ``rediss://`` it checks no certificate unless it is told to.
    """
    if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
    return "memory://localhost/" if url == MEMORY else url


def transport_options(url: str, *, prefixed: bool = True) -> dict[str, Any]:
    """Return kombu's options for a broker.

    A half-open connection hangs for ever without these time limits. The key prefix keeps our messages apart from those
    of another application on the same Redis, whose worker would else redeliver them.
    """
    if url == MEMORY:
        return {"polling_interval": 0.02}  # seconds; its default of one would add itself to every tick
    if not url.startswith(("redis", "unix")):
        return {}
    options: dict[str, Any] = {
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "retry_on_timeout": True,
    }
    return options | ({"global_keyprefix": KEY_PREFIX} if prefixed else {})


def shard_message(shard_range: ShardRange) -> dict[str, Any]:
    """Return how a job of a range is sent: it reads well in Flower, and one that comes late is no more than a look."""
    return {
        "args": [shard_range.shard_min, shard_range.shard_max],
        "expires": EXPIRES,
        "argsrepr": f"shardcodes {shard_range}",
        "queue": QUEUE,
    }
