"""The store: one pool's Redis, with its keys, its scripts, and calls that raise a one-line error."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterError,
    MasterDownError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from sensorpool.config.defaults import MEMORY, key_prefix
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import hide_password, safe_line
from sensorpool.model.values import ShardRange

PROBE_KEPT = 10_000  # milliseconds
_LONGEST = 200  # characters of what Redis says
_AT_ONCE = 1_000  # keys
Call = tuple[Any, list[str], Sequence[Any]]
"""A script, its keys and its arguments."""


class RedisStore:
    """One pool's Redis. Safe to share between threads.

    :param url: its URL, for error messages.
    :raises Unreachable: by every method that calls Redis, when Redis does not answer.
    """

    def __init__(self, client: Any, *, url: str = MEMORY, namespace: str = "") -> None:
        self.client = client
        self._namespace = namespace
        self._url = hide_password(url)

    def key(self, shard_range: ShardRange, name: str) -> str:
        """Return the key with this name of a range."""
        return range_key(shard_range, name, self._namespace)

    def pool_key(self, name: str) -> str:
        """Return the key with this name of the whole pool."""
        return f"{key_prefix(self._namespace)}{{pool}}:{name}"

    def script(self, name: str) -> Any:
        """Return the script with this name in the folder ``lua``."""
        return self.client.register_script(files("sensorpool.leases").joinpath("lua", f"{name}.lua").read_text())

    def run(self, script: Any, keys: list[str], arguments: Sequence[Any]) -> Any:
        """Run a script; return its answer."""
        return self.call(script, keys=keys, args=arguments)

    def run_each(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts one after the other in one round trip; return their answers.

        Where one fails, the others have run all the same.
        """
        if len(calls) == 1:
            return [self.run(*calls[0])]
        pipeline = self.pipeline()
        for script, keys, arguments in calls:
            pipeline.evalsha(script.sha, len(keys), *keys, *arguments)
        answers = self.call(pipeline.execute, raise_on_error=False)
        for place, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):  # Redis has been started anew
                answers[place] = self.run(*calls[place])
            elif isinstance(answer, RedisError):
                raise self.unreachable(answer) from answer
        return list(answers)

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a command of the client, or of a pipeline; return the answer of Redis."""
        try:
            answer = function(*arguments, **named)
        except RedisError as error:
            raise self.unreachable(error) from error
        if named.get("raise_on_error") is False:  # a pipeline returns the errors of its commands
            self._drop_spoilt_connections(answer)
        return answer

    def pipeline(self) -> Any:
        """Begin a pipeline: its commands are sent together; commands of other clients may run between them."""
        return self.client.pipeline(transaction=False)

    def read_hash(self, name: str) -> dict[str, str] | None:
        """Return a hash; None where the key is of a type that we never write."""
        pipeline = self.pipeline()
        pipeline.hgetall(name)
        [fields] = self.call(pipeline.execute, raise_on_error=False)
        if isinstance(fields, RedisError) and not isinstance(fields, ResponseError):
            raise self.unreachable(fields) from fields
        return fields if isinstance(fields, dict) else None

    def unreachable(self, error: Exception) -> Unreachable:
        """Make the error that says that Redis does not answer, and why."""
        self._drop_spoilt_connections([error])
        does = "refuses the user or password" if isinstance(error, AuthenticationError) else "does not answer"
        return Unreachable(f"Redis {self._url} {does}: {safe_line(error, _LONGEST)}")

    def _drop_spoilt_connections(self, answers: Iterable[object]) -> None:
        """Close the idle connections if the server behind them has become a replica, so the next call connects anew.

        After a failover by address they lead to the old primary for as long as it lives, and it answers.
        """
        if any(isinstance(answer, RedisError) and _is_of_a_replica(answer) for answer in answers):
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
            self._drop_spoilt_connections([error])
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


def _is_of_a_replica(error: RedisError) -> bool:
    """Whether a server refuses a command because it is a replica. (Redis 6.2 wraps the refusal of a script.)"""
    return isinstance(error, ReadOnlyError | MasterDownError) or "READONLY" in str(error)


def range_key(shard_range: ShardRange, name: str, namespace: str = "") -> str:
    """Return the Redis key with this name of a range."""
    return f"{key_prefix(namespace)}{{{shard_range}}}:{name}"
