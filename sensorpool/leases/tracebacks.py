"""The tracebacks of failing pokes, in Redis for people: one for each signature, not one for each poke. Disposable."""

import json

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Milliseconds

MOST = 200  # in a pool
_KEPT = 2 * 86_400_000  # milliseconds after the last one


class Tracebacks:
    """The tracebacks of a pool.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._name = store.pool_key("tracebacks")
        self._keep = store.script("keep_traceback")

    def keep(self, signature: str, text: str, now: Milliseconds) -> None:
        """Keep the text of a signature; the oldest one of too many goes."""
        self._store.run(self._keep, [self._name], [MOST, _KEPT, signature, json.dumps([now, text])])

    def find(self, signature: str) -> str | None:
        """Return the text of a signature, if it is kept."""
        try:
            _, text = json.loads((self._store.read_hash(self._name) or {})[signature])
        except (KeyError, ValueError, TypeError, RecursionError):
            return None
        return text if isinstance(text, str) else None
