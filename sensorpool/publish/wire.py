"""The wire: the names of tasks and queues on the broker, their messages, and the options of a connection."""

import re
from typing import Any

from sensorpool.config.defaults import MEMORY, key_prefix
from sensorpool.config.settings import Settings
from sensorpool.model import sentinel
from sensorpool.model.sentinel import is_sentinel
from sensorpool.model.urls import redis_options, without_options
from sensorpool.model.values import ShardRange

POKE_SHARD = "sensorpool.poke_shard"
RESCUE = "sensorpool.rescue"
QUEUE = "sensorpool"
MIXED = "%"  # the routing key of results of several DAGs, as no dag_id is spelled: a message for each DAG costs more
POOL = "sensorpool_pool"
"""The header with the pool id. A message whose sender does not know it has no such header."""
AGAIN = "sensorpool_again"
"""The header of a job that a worker has sent on: a second worker does not send it on again."""
RETRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2}  # a connection that lay idle may be gone
_SEPARATOR = "\x06\x16"  # kombu's own: stated, because an overlay must not change it for workers alone
CONFIRM = 10.0  # seconds for RabbitMQ to confirm that it has a message


def queue_of(settings: Settings) -> str:
    """Return the queue of a pool's jobs."""
    return f"{QUEUE}.{settings.namespace}" if settings.namespace else QUEUE


def routing_key(dag_id: str) -> str:
    """Spell a dag_id as one word of a routing key, of at most 255 bytes: dots and wildcards have a meaning there."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_~" else f"%{ord(c):02X}" for c in dag_id)[:255]


def broker_url(url: str) -> str:
    """Return the URL as kombu wants it.

    The URL's options are in `transport_options`. kombu warns of a ``memory://`` URL without a host, checks certificates
    of ``rediss://`` only on request, and has another scheme than redis-py for a Unix socket and another name for its
    database.
    """
    if url == MEMORY:
        return "memory://localhost/"
    if ";" in url:  # several brokers: kombu tries the next one when the first is away
        return ";".join(broker_url(each) for each in url.split(";"))
    if url.startswith("unix://"):
        database = re.search(r"[?&]db=(\d+)", url)
        number = f"?virtual_host={database[1]}" if database else ""
        return without_options(url).replace("unix://", "redis+socket://", 1) + number
    if is_sentinel(url):
        return ";".join(sentinel.read(url).each())  # kombu asks them all, and not one after the other
    if not url.startswith("redis"):
        return url
    url = without_options(url)
    if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
    return url


def transport_options(url: str, namespace: str = "", *, prefixed: bool = True) -> dict[str, Any]:
    """Return kombu's options for a broker.

    Without these time limits a half-open connection hangs for ever. The key prefix keeps our messages apart from
    another application's on the same Redis, whose worker would otherwise redeliver ours.
    """
    if url == MEMORY:
        return {"polling_interval": 0.02}  # seconds; the default of one second would delay every tick
    if not is_redis(url):
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
    if is_sentinel(url):
        named = sentinel.read(url)
        options |= {"master_name": named.master_name, "sentinel_kwargs": named.sentinel_options()}
    return options | ({"global_keyprefix": key_prefix(namespace), "sep": _SEPARATOR} if prefixed else {})


def publish_options(url: str) -> dict[str, Any]:
    """Return the time limits of one message, where kombu needs them for each message."""
    return {"timeout": CONFIRM, "confirm_timeout": CONFIRM} if is_amqp(url) else {}


def is_redis(url: str) -> bool:
    """Whether a broker is a Redis, however it is found."""
    return url.startswith(("redis", "unix")) or is_sentinel(url)


def is_amqp(url: str) -> bool:
    """Whether a broker is RabbitMQ."""
    return url.startswith(("amqp", "pyamqp"))


def shard_message(shard_range: ShardRange, queue: str = QUEUE, pool_id: str | None = None) -> dict[str, Any]:
    """Return the arguments of `send_task` for a job of a range. Flower shows its range.

    It has no `expires`, which goes by the wall clocks of two hosts: a late job is one more look, and does no harm.
    """
    return {
        "args": [shard_range.shard_min, shard_range.shard_max],
        "argsrepr": f"shardcodes {shard_range}",
        "queue": queue,
        "headers": headers(pool_id),
    }


def entry_of(shard_range: ShardRange) -> str:
    """Return the name of a range's entry in beat's schedule."""
    return f"poke-{shard_range}"


def headers(pool_id: str | None) -> dict[str, str]:
    """Return the headers of a pool's message; none while the pool is not known."""
    return {} if pool_id is None else {POOL: pool_id}


def is_of_another_pool(named: object, ours: str | None) -> bool:
    """Whether a message names another pool. One that names none, for its sender does not know it, is taken."""
    return named is not None and ours is not None and named != ours
