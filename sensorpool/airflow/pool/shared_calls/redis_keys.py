"""RedisKeySensor: all keys of a Connection in one pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.redis.hooks.redis import RedisHook
from airflow.providers.redis.sensors.redis_key import RedisKeySensor

from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits


class Keys(ByOperator):
    """Keys by their Connection."""

    shared = ("redis_conn_id",)
    known = ("key", "redis_conn_id")

    def read(self, arguments: Mapping[str, Any]) -> tuple[None, str] | None:
        """Return the key."""
        key = arguments.get("key")
        return (None, key) if isinstance(key, str) else None

    def answers(self, operator: Any, kin: None, asked: Sequence[str]) -> Sequence[bool]:  # noqa: ARG002
        """Ask for all keys."""
        pipeline = RedisHook(operator.redis_conn_id).get_conn().pipeline(transaction=False)
        for key in asked:
            pipeline.exists(key)
        return [bool(found) for found in pipeline.execute()]


def shared_call(cls: type, found: Any) -> Keys | None:
    """Return the shared call of RedisKeySensor."""
    return Keys(found) if fits(cls, found, RedisKeySensor) else None
