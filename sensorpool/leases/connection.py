"""A client of Redis for a URL, or of the one Redis in this process's memory."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from sensorpool.config.defaults import MEMORY
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import hide_password
from sensorpool.model.sentinel import is_sentinel, read
from sensorpool.model.urls import redis_options


def connect(url: str, *, patience: float | None = None) -> Any:
    """Make a Redis client. Every call has a time limit, because a half-open connection would hang for ever.

    No call is made twice.

    :param patience: seconds after which a call that has no answer ends; None: as is usual.
    :raises SettingsError: when the URL is malformed or the embedded Redis is not installed.
    """
    if url == MEMORY:
        return _embedded()
    options: dict[str, Any] = {"socket_timeout": 10, "socket_connect_timeout": 5, "health_check_interval": 10}
    if not url.startswith("unix"):
        options["socket_keepalive"] = True
    # whatever the URL says: a script that takes or ends a lease would find what it has done itself
    options["retry"] = Retry(NoBackoff(), 0)
    if patience is not None:
        options |= {"socket_timeout": patience, "socket_connect_timeout": patience}
    try:
        # a value of another program may be no text; it must not stop the range
        options |= {"decode_responses": True, "encoding_errors": "replace"}
        client = _by_sentinels(url, options) if is_sentinel(url) else redis.Redis.from_url(url, **options)
        client.connection_pool.make_connection()  # opens no connection, but checks the options
        return client
    except (TypeError, ValueError) as error:
        raise SettingsError(f"SENSORPOOL_REDIS_URL: {hide_password(str(error))}") from None


def _by_sentinels(url: str, options: dict[str, Any]) -> Any:
    """Make a client of the Redis that Sentinels name: it asks them at each new connection."""
    named = read(url)
    of_sentinels = {name: value for name, value in options.items() if name.startswith("socket_")}
    make: Any = Sentinel  # it has no types
    sentinels = make(named.hosts, sentinel_kwargs=of_sentinels | named.sentinel_options())
    login = {"username": named.username, "password": named.password, "db": named.database}
    return sentinels.master_for(named.master_name, **login, **(options | redis_options(url)))


_embedded_server: Any = None


def _embedded() -> Any:
    """Return a client of the one in-process Redis."""
    global _embedded_server
    try:
        import fakeredis
        import lupa  # noqa: F401  # fakeredis runs our scripts with it
    except ModuleNotFoundError:
        raise SettingsError(
            "SENSORPOOL_REDIS_URL is not set, or memory://: name a Redis like redis://localhost:6379/0 "
            "that all processes share; "
            'for a pool in one process, `pip install "fakeredis[lua]"`'
        ) from None
    if _embedded_server is None:
        _embedded_server = fakeredis.FakeServer()
    return fakeredis.FakeRedis(server=_embedded_server, decode_responses=True)
