"""Which process cannot poke which class, told to operators: a field of a hash in Redis for each process. Disposable."""

import json
import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.lease import Leases
from sensorpool.leases.poke_log import process_name
from sensorpool.model.values import Milliseconds

_KEY = "not_here"
EVERY = 30.0  # seconds between two times that a process says the same
STALE = 120_000  # milliseconds after which a process that says no more has ended, or been mended
_KEPT = 600  # seconds
_CLASSES = 20  # told of one process
_LONGEST = 300  # characters
_GARBLED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Complaint(NamedTuple):
    """A class that a worker cannot poke."""

    worker: str
    op_classpath: str
    why: str

    def __str__(self) -> str:
        return f"{self.worker} cannot poke {self.op_classpath}, other workers have to: {self.why}"


class Complaints:
    """What one process has told."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self._told_at = 0.0

    def tell(self, leases: Leases, worker: str, refusals: Mapping[str, str], now: Milliseconds) -> None:
        """Tell which classes this process cannot poke; take it back once it can.

        :raises Unreachable: when Redis does not answer.
        """
        if refusals == self.told and time.monotonic() - self._told_at < EVERY:
            return
        store, key, process = leases.store, leases.store.pool_key(_KEY), process_name(worker, os.getpid())
        gone = [field for field, text in found(leases).items() if not _is_fresh(text, now)]
        if refusals:
            text = json.dumps([now, dict(list(refusals.items())[:_CLASSES])])
            store.call(store.client.hset, key, process, text)
            store.call(store.client.expire, key, _KEPT)
        else:
            gone.append(process)
        if gone:
            store.call(store.client.hdel, key, *gone)
        self.told, self._told_at = dict(refusals), time.monotonic()


def found(leases: Leases) -> dict[str, str]:
    """Return what each process told operators, as `read` reads it; a key that is not ours counts as empty.

    :raises Unreachable: when Redis does not answer.
    """
    return leases.store.read_hash(leases.store.pool_key(_KEY)) or {}


def read(told: Mapping[str, str], now: Milliseconds) -> list[Complaint]:
    """Read what processes told lately; what others wrote is passed over. One for each worker and class."""
    complaints: dict[tuple[str, str], Complaint] = {}
    for name, text in told.items():
        try:
            if _is_fresh(text, now):
                worker = safe_line(name.rpartition(" ")[0], _LONGEST)
                for path, why in json.loads(text)[1].items():
                    complaints[worker, path] = Complaint(worker, safe_line(path, _LONGEST), safe_line(why, _LONGEST))
        except _GARBLED:
            continue
    return sorted(complaints.values())


def _is_fresh(text: str, now: Milliseconds) -> bool:
    try:
        return abs(now - int(json.loads(text)[0])) < STALE
    except (*_GARBLED, OverflowError, IndexError):
        return False
