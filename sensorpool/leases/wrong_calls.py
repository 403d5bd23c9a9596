"""Which classes have a shared call that was wrong, in Redis: all processes poke such a class one by one. Disposable."""

from collections.abc import Mapping

from sensorpool.config.version import __version__
from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.redis_store import RedisStore

_KEPT = 7 * 86_400  # seconds
_LONGEST = 300  # characters


class WrongCalls:
    """The classes of a pool.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        # another version may have mended it
        self._key = store.pool_key(f"wrong_calls:{__version__}")

    def note(self, found: Mapping[str, str]) -> None:
        """Note classes, each with what its call was wrong about."""
        pipeline = self._store.pipeline()
        for op_classpath, why in found.items():
            pipeline.hset(self._key, op_classpath, safe_line(why, _LONGEST))
        pipeline.expire(self._key, _KEPT)
        self._store.call(pipeline.execute)

    def found(self) -> dict[str, str]:
        """Return the noted classes, each with the reason."""
        noted = self._store.read_hash(self._key) or {}
        return {safe_line(path, _LONGEST): safe_line(why, _LONGEST) for path, why in noted.items()}
