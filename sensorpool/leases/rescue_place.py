"""How far rescue has come, in Redis: its next round goes on there, in whichever process that runs.

Disposable. Without it rescue begins anew.
"""

from sensorpool.leases.redis_store import RedisStore

KEPT = 86_400_000  # milliseconds


class RescuePlace:
    """The place of a pool's rescue, as a text.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._key = store.pool_key("rescue_place")

    def read(self) -> str | None:
        """Return the text; None if there is none."""
        text = self._store.call(self._store.client.get, self._key)
        return text if isinstance(text, str) else None

    def keep(self, text: str) -> None:
        """Keep a text in the place of the one before."""
        self._store.call(self._store.client.set, self._key, text, px=KEPT)
