"""The last deaths of the workers' child processes, for operators: one list for the pool, in Redis and disposable."""

import json
from typing import NamedTuple

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.answers import milliseconds
from sensorpool.leases.lease import Leases
from sensorpool.model.exit_status import ending, is_from_outside

LATELY = 600.0  # seconds for which a death is reported
_KEPT = 86_400  # seconds
_LONGEST = 200  # characters
_GARBLED = (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError)


class ChildDeath(NamedTuple):
    """The death of a child process."""

    worker: str
    cause: str
    outside: bool  # killed from outside: by a person, the kernel, or a time limit


class ChildDeaths:
    """The list of deaths, on the Redis of the given leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._store = leases.store
        self._list = leases.store.pool_key("deaths")

    def add(self, worker: str, pid: int, returncode: int) -> None:
        """Record a death, and drop the deaths that are older than `LATELY`."""
        now = milliseconds(self._store.call(self._store.client.time))
        pipeline = self._store.pipeline()
        pipeline.zremrangebyscore(self._list, "-inf", now - round(LATELY * 1000))
        pipeline.zadd(self._list, {json.dumps([now, worker[:_LONGEST], pid, returncode]): now})
        pipeline.expire(self._list, _KEPT)
        if any(isinstance(answer, Exception) for answer in self._store.call(pipeline.execute, raise_on_error=False)):
            self._store.call(self._store.client.delete, self._list)  # the key has a type that we never write

    def lately(self) -> list[ChildDeath]:
        """Return the deaths of the last `LATELY` seconds, the oldest first."""
        since = milliseconds(self._store.call(self._store.client.time)) - round(LATELY * 1000)
        pipeline = self._store.pipeline()
        pipeline.zrangebyscore(self._list, since, "+inf")
        [texts] = self._store.call(pipeline.execute, raise_on_error=False)
        deaths = []
        for text in texts if isinstance(texts, list) else ():
            try:
                _, worker, _, returncode = json.loads(text)
                code = int(returncode)
                deaths.append(ChildDeath(safe_line(worker, _LONGEST), ending(code), is_from_outside(code)))
            except _GARBLED:
                continue
        return deaths
