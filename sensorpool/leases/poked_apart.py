"""Groups that one process left to the others: when another process poked them outside of a job."""

from collections.abc import Mapping

from redis.exceptions import RedisError

from sensorpool.leases.answers import read_times
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Milliseconds, ShardRange

_KEPT = 86_400  # seconds: as long as the state of a range


class PokedApart:
    """The groups of a pool's ranges that were left to other processes and poked there.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def keep(self, shard_range: ShardRange, poked: Mapping[int, Milliseconds]) -> None:
        """Keep the time when each group was poked."""
        if poked:
            name = self._store.key(shard_range, "poked")
            pipeline = self._store.pipeline()
            pipeline.hset(name, mapping={str(group_id): at for group_id, at in poked.items()})
            pipeline.expire(name, _KEPT)
            # a key that is not ours: the next job's `take` deletes it
            self._store.call(pipeline.execute, raise_on_error=False)

    def take(self, shard_range: ShardRange) -> dict[int, Milliseconds]:
        """Return the times of `keep`, and forget them; a key that is not ours counts as empty."""
        name = self._store.key(shard_range, "poked")
        pipeline = self._store.client.pipeline(transaction=True)
        pipeline.hgetall(name)
        pipeline.delete(name)
        found, _ = self._store.call(pipeline.execute, raise_on_error=False)
        return {} if isinstance(found, RedisError) else read_times(found.items())
