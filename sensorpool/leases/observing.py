"""The observer: the one worker of a pool that tells the figures of the whole pool, so that a sum over workers is right.

Its key in Redis expires a while after the observer was last seen. Then the next worker that asks is the observer.
"""

import time

from sensorpool.errors import Unreachable
from sensorpool.leases.lease import Leases


class Observing:
    """The part of one worker, which is the observer or is not. Belongs to one thread; any thread may ask `is_observer`.

    :param token: names the worker; no other process has it.
    """

    def __init__(self, leases: Leases, token: str) -> None:
        self._store = leases.store
        self._key = leases.store.pool_key("observer")
        self._token = token
        self._extend = leases.store.script("extend")
        self._release = leases.store.script("release")
        self._until = 0.0

    @property
    def is_observer(self) -> bool:
        """Whether this worker is the observer still, by its own clock."""
        return time.monotonic() < self._until

    def take_part(self, kept: float) -> bool:
        """Remain the observer, or become it if there is none; return whether this worker is the observer.

        :param kept: seconds for which it is then.
        :raises Unreachable: when Redis does not answer.
        """
        asked, milliseconds = time.monotonic(), round(kept * 1000)
        store = self._store
        is_ours = store.run(self._extend, [self._key], [self._token, milliseconds]) or store.call(
            store.client.set, self._key, self._token, nx=True, px=milliseconds
        )
        self._until = asked + kept if is_ours else 0.0
        return bool(is_ours)

    def leave(self) -> None:
        """Leave the part to another worker. While Redis is away, the key expires by itself."""
        self._until = 0.0
        try:
            self._store.run(self._release, [self._key], [self._token])
        except Unreachable:
            return
