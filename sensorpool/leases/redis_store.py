"""One pool's Redis: how it is connected, its keys, its scripts, and calls that raise a one-line error."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterError,
    MasterDownError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from sensorpool.config.defaults import MEMORY, key_prefix
from sensorpool.errors import SettingsError, Unreachable
from sensorpool.instrumentation.redaction import hide_password, safe_line
from sensorpool.model.sentinel import is_sentinel, read
from sensorpool.model.urls import redis_options
from sensorpool.model.values import Milliseconds, ShardRange

PROBE_KEPT = 10_000  # milliseconds
_LONGEST = 200  # characters of what Redis says
_AT_ONCE = 1_000  # keys


class RedisStore:
    """One pool's Redis. Safe to share between threads.

    :param url: its URL, for error messages.
    :raises Unreachable: by every method that calls Redis, when Redis does not answer.
    """

    def __init__(self, client: Any, *, url: str = MEMORY, namespace: str = "") -> None:
        self.client = client
        self._scripts: dict[str, Any] = {}
        self._namespace = namespace
        self._url = hide_password(url)

    def key(self, shard_range: ShardRange, name: str) -> str:
        """Return the key with this name of a range."""
        return range_key(shard_range, name, self._namespace)

    def pool_key(self, name: str) -> str:
        """Return the key with this name of the whole pool."""
        return f"{key_prefix(self._namespace)}{{pool}}:{name}"

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run the script with this name in the folder ``lua``; return its answer."""
        if script not in self._scripts:
            text = files("sensorpool.leases").joinpath("lua", f"{script}.lua").read_text()
            self._scripts[script] = self.client.register_script(text)
        return self.call(self._scripts[script], keys=keys, args=arguments)

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a command of the client, or of a pipeline; return the answer of Redis."""
        try:
            return function(*arguments, **named)
        except RedisError as error:
            raise self.unreachable(error) from error

    def now(self) -> Milliseconds:
        """Return the time by the clock of Redis."""
        return milliseconds(self.call(self.client.time))

    def pipeline(self) -> Any:
        """Begin a pipeline: its commands are sent together; commands of other clients may run between them."""
        return self.client.pipeline(transaction=False)

    def unreachable(self, error: Exception) -> Unreachable:
        """Make the error that says that Redis does not answer, and why."""
        self._drop_spoilt_connections(error)
        does = "refuses the user or password" if isinstance(error, AuthenticationError) else "does not answer"
        return Unreachable(f"Redis {self._url} {does}: {safe_line(error, _LONGEST)}")

    def _drop_spoilt_connections(self, error: Exception) -> None:
        """Close the idle connections if the server behind them has become a replica, so the next call connects anew.

        After a failover by address they lead to the old primary for as long as it lives, and it answers. (Redis 6.2
        wraps the refusal of a script.)
        """
        if isinstance(error, ReadOnlyError | MasterDownError) or "READONLY" in str(error):
            self.client.connection_pool.disconnect(inuse_connections=False)

    def in_cluster_mode(self) -> str | None:
        """Return a line that says so if this Redis is in cluster mode, else None.

        There a command has keys of one slot only. Celery's way to a Redis, and ours, have commands with more.
        """
        try:
            self.call(self.client.exists, self.pool_key("probe"), f"{key_prefix(self._namespace)}{{slot}}:probe")
        except Unreachable as error:
            if isinstance(error.__cause__, AskError | ClusterCrossSlotError | ClusterError):
                return (
                    f"Redis {self._url} is in cluster mode, where leases and Celery cannot work: name a single Redis, "
                    "or a primary with replicas"
                )
            raise
        return None

    def probe(self) -> None:
        """Check that Redis answers and takes writes. A replica, or a Redis that is full, takes none.

        :raises Unreachable: when it does not, or is in cluster mode.
        """
        if (said := self.in_cluster_mode()) is not None:
            raise Unreachable(said)
        try:
            self.client.set(self.pool_key("probe"), "1", px=PROBE_KEPT)
        except ResponseError as error:
            self._drop_spoilt_connections(error)
            said = safe_line(error, _LONGEST)
            raise Unreachable(f"Redis {self._url} answers, and takes no writes: {said}") from error
        except RedisError as error:
            raise self.unreachable(error) from error

    def forget_all(self) -> int:
        """Delete all keys of this pool; return how many there were. Jobs on the broker stay: they do no harm.

        :raises Unreachable: also where this user of Redis may not look for keys.
        """
        pattern = f"{key_prefix(self._namespace)}{{*"  # those of another namespace have no brace there
        names = self.call(lambda: list(self.client.scan_iter(pattern, count=1_000)))
        for start in range(0, len(names), _AT_ONCE):
            self.call(self.client.unlink, *names[start : start + _AT_ONCE])
        return len(names)

    def eviction_policy(self) -> str | None:
        """Return Redis's ``maxmemory-policy``, or None where Redis does not tell it."""
        try:
            return str(self.client.config_get("maxmemory-policy").get("maxmemory-policy", "")) or None
        except RedisError:
            return None


def range_key(shard_range: ShardRange, name: str, namespace: str = "") -> str:
    """Return the Redis key with this name of a range."""
    return f"{key_prefix(namespace)}{{{shard_range}}}:{name}"


def milliseconds(time: Sequence[Any]) -> Milliseconds:
    """Read the answer of the command TIME."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


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
