"""The outages of backends, in one hash in Redis that all workers read. A backend's last note counts. Disposable."""

import json
import time

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.redis_store import RedisStore, milliseconds
from sensorpool.model.outage import Kind, Outage

STALE = 300.0  # seconds after which an outage that no poke has asked about is forgotten: no group waits for it
MOST = 200  # outages at once
_LONGEST_CAUSE = 300  # characters
_KEPT = 86_400_000  # milliseconds


class Outages:
    """The outages that a pool knows of; their times are of this process's monotonic clock.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._key = store.pool_key("outages")

    def look(self) -> list[Outage]:
        """Return the known outages by name, those too that are over since a short while."""
        pipeline = self._store.pipeline()
        pipeline.hgetall(self._key)
        pipeline.time()
        found, at = self._store.call(pipeline.execute)
        now = time.monotonic()
        ahead = milliseconds(at) / 1000 - now
        read = (_read(backend, text, ahead) for backend, text in found.items())
        known = [each for each in read if each is not None and _is_fresh(each, now)]
        if stale := found.keys() - {each.backend for each in known}:
            self._store.call(self._store.client.hdel, self._key, *stale)
        return sorted(known)

    def away(self) -> list[Outage]:
        """Return the backends that are not asked now."""
        return [each for each in self.look() if each.is_open]

    def write(self, outage: Outage) -> bool:
        """Note what this process knows of a backend; return whether nothing was known of it."""
        ahead = self._store.now() / 1000 - time.monotonic()
        times = [outage.since + ahead, outage.ask_at + ahead, outage.quiet_until and outage.quiet_until + ahead]
        cause = safe_line(outage.cause, _LONGEST_CAUSE)
        text = json.dumps([outage.kind, *(round(each, 3) for each in (*times, outage.pause)), cause])
        pipeline = self._store.pipeline()
        pipeline.hset(self._key, outage.backend, text)
        pipeline.pexpire(self._key, _KEPT)
        return bool(self._store.call(pipeline.execute)[0])


def _is_fresh(outage: Outage, now: float) -> bool:
    if outage.since > now + 1.0:
        return False  # the clock of Redis was put back
    return now < outage.ask_at + (STALE if outage.is_open else 0.0)


def _read(backend: str, text: str, ahead: float) -> Outage | None:
    """Read a note; None where it is not ours, or of a newer version.

    :param ahead: by how many seconds the clock of Redis is ahead of the monotonic clock.
    """
    try:
        kind, since, ask_at, quiet_until, pause, cause = json.loads(text)
        quiet = quiet_until and quiet_until - ahead
        return Outage(backend, Kind(kind), since - ahead, ask_at - ahead, pause, quiet, cause)
    except (ValueError, TypeError):
        return None
