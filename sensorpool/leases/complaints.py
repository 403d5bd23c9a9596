"""Which process cannot poke which class, for operators: a hash in Redis with one field a process. Disposable."""

import json
import os
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.lease import Leases
from sensorpool.model.values import Milliseconds

_KEY = "not_here"
EVERY = 30.0  # seconds after which a process repeats an unchanged complaint
STALE = 120_000  # milliseconds after which a complaint that is not repeated no longer holds
_KEPT = 600  # seconds
_CLASSES = 20  # the most classes in one process's complaint
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
    """The complaint of one process."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self._told_at = 0.0

    def tell(self, leases: Leases, worker: str, refusals: Mapping[str, str], now: Milliseconds) -> None:
        """Report which classes this process cannot poke; withdraw the report once it can poke them.

        :raises Unreachable: when Redis does not answer.
        """
        if refusals == self.told and time.monotonic() - self._told_at < EVERY:
            return
        store, key, process = leases.store, leases.store.pool_key(_KEY), f"{worker} {os.getpid()}"
        stale = [field for field, text in found(leases).items() if not _is_fresh(text, now)]
        if refusals:
            text = json.dumps([now, dict(list(refusals.items())[:_CLASSES])])
            store.call(store.client.hset, key, process, text)
            store.call(store.client.expire, key, _KEPT)
        else:
            stale.append(process)
        if stale:
            store.call(store.client.hdel, key, *stale)
        self.told, self._told_at = dict(refusals), time.monotonic()


def found(leases: Leases) -> dict[str, str]:
    """Return each process's complaint as text, for `read`; a key that is not ours counts as empty.

    :raises Unreachable: when Redis does not answer.
    """
    return leases.store.read_hash(leases.store.pool_key(_KEY)) or {}


def withdraw(leases: Leases, worker: str) -> None:
    """Withdraw what earlier processes of a worker's name have reported: it starts, and has poked nothing yet.

    :raises Unreachable: when Redis does not answer.
    """
    if fields := [field for field in found(leases) if field.rpartition(" ")[0] == worker]:
        leases.store.call(leases.store.client.hdel, leases.store.pool_key(_KEY), *fields)


def read(told: Mapping[str, str], now: Milliseconds, living: Collection[str]) -> list[Complaint]:
    """Read the fresh complaints, one for each worker and class; a text that is not ours is skipped.

    :param living: names of the workers that live: what another one has reported no longer holds.
    """
    complaints: dict[tuple[str, str], Complaint] = {}
    for name, text in told.items():
        worker = name.rpartition(" ")[0]
        if worker not in living:
            continue
        worker = safe_line(worker, _LONGEST)
        try:
            if _is_fresh(text, now):
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
