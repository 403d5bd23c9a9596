"""What is said on the broker: the names of tasks, queue and exchange, and how a connection behaves."""

import re
from typing import Any

from sensorpool.config.defaults import MEMORY, key_prefix
from sensorpool.config.settings import Settings
from sensorpool.model.urls import redis_options, without_options
from sensorpool.model.values import ShardRange

POKE_SHARD = "sensorpool.poke_shard"
RESCUE = "sensorpool.rescue"
QUEUE = "sensorpool"
RESULTS = "sensorpool.results"
EXPIRES = 7_200.0  # seconds; by the clocks of two hosts, which may be apart, and beat bounds what waits in the queue
POOL = "sensorpool_pool"
"""The header that says whose message it is. An older version's has none."""
AGAIN = "sensorpool_again"
"""The header of a job that a worker sent on for its own range: a second one does not send it on once more."""
RETRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2}  # a connection that lay idle may be gone
CONFIRM = 10.0  # seconds for RabbitMQ to confirm that it has a message


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Return the Celery settings that sender and worker share: JSON only, no results, bounded waits."""
    shared: dict[str, Any] = {
        "broker_url": broker_url(settings.broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_timeout": 5,
        "broker_connection_max_retries": None,  # however long the broker is away: Celery's default ends the worker
        "broker_transport_options": transport_options(settings.broker, settings.namespace),
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_default_queue": queue_of(settings),
        "task_create_missing_queues": True,
        "task_publish_retry_policy": RETRY,
        "enable_utc": True,
    }
    if settings.namespace:  # on RabbitMQ nothing else keeps these apart
        shared["event_exchange"] = f"celeryev.{settings.namespace}"
        shared["control_exchange"] = f"celery.{settings.namespace}"
    return shared


def queue_of(settings: Settings) -> str:
    """Return the queue of a pool's jobs."""
    return f"{QUEUE}.{settings.namespace}" if settings.namespace else QUEUE


def results_of(settings: Settings) -> str:
    """Return the exchange of a pool's results."""
    return f"{QUEUE}.{settings.namespace}.results" if settings.namespace else RESULTS


def broker_url(url: str) -> str:
    """Return the URL as kombu wants it.

    Its options are in `transport_options`. Without a host it warns and takes one anyway. And of ``rediss://`` it checks
    no certificate unless it is told to. A Unix socket has another scheme there than redis-py's, and the database
    another name.
    """
    if url == MEMORY:
        return "memory://localhost/"
    if ";" in url:  # others to go to when the first is away
        return ";".join(broker_url(each) for each in url.split(";"))
    if url.startswith("unix://"):
        found = re.search(r"[?&]db=(\d+)", url)
        number = f"?virtual_host={found[1]}" if found else ""
        return without_options(url).replace("unix://", "redis+socket://", 1) + number
    if not url.startswith("redis"):
        return url
    url = without_options(url)
    if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
    return url


def transport_options(url: str, namespace: str = "", *, prefixed: bool = True) -> dict[str, Any]:
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
        "health_check_interval": 10,
        "retry_on_timeout": True,
    }
    if not url.startswith("unix"):
        options["socket_keepalive"] = True
    options |= redis_options(url)
    return options | ({"global_keyprefix": key_prefix(namespace)} if prefixed else {})


def sender_options(url: str, namespace: str = "", *, prefixed: bool = True) -> dict[str, Any]:
    """Return kombu's options for a connection that only sends: RabbitMQ confirms what it has.

    Without that, what is written to a half-open connection, or to a broker that takes no more, counts as sent.
    """
    options = transport_options(url, namespace, prefixed=prefixed)
    return options | {"confirm_publish": True} if is_amqp(url) else options


def publish_options(url: str) -> dict[str, Any]:
    """Return how long one message may take, where kombu has to be told each time."""
    return {"timeout": CONFIRM, "confirm_timeout": CONFIRM} if is_amqp(url) else {}


def is_amqp(url: str) -> bool:
    """Whether a broker is RabbitMQ."""
    return url.startswith(("amqp", "pyamqp"))


def shard_message(shard_range: ShardRange, queue: str = QUEUE, pool_id: str | None = None) -> dict[str, Any]:
    """Return how a job of a range is sent: it reads well in Flower, and one that comes late is no more than a look."""
    return {
        "args": [shard_range.shard_min, shard_range.shard_max],
        "expires": EXPIRES,
        "argsrepr": f"shardcodes {shard_range}",
        "queue": queue,
        "headers": headers(pool_id),
    }


def headers(pool_id: str | None) -> dict[str, str]:
    """Return the headers of a message of a pool, as far as it is known."""
    return {} if pool_id is None else {POOL: pool_id}
