"""Wait for instances, and call them off."""

import time
from collections.abc import Collection, Iterable

from sensorpool.errors import Unknown
from sensorpool.flush import call_off
from sensorpool.model import Flushed
from sensorpool.poke.answer import sanitised
from sensorpool.states import TERMINAL, State
from sensorpool.store import looking
from sensorpool.store.database import Database

_LOOKS = (0.05, 1.0)  # seconds between two looks: the first, and the longest
AT_ONCE = 10_000  # ids in one statement


def wait(database: Database, instance_ids: Iterable[int], timeout: float | None = None) -> dict[int, State]:
    """Wait until all instances are settled, or ``timeout`` seconds have passed; return the state of each.

    :raises Unknown: when there is no such instance.
    :raises Unreachable: when the database does not answer.
    """
    ids = list(dict.fromkeys(instance_ids))
    deadline = None if timeout is None else time.monotonic() + timeout
    settled: dict[int, State] = {}
    pause = _LOOKS[0]
    while True:
        found = look(database, [instance_id for instance_id in ids if instance_id not in settled])
        settled.update({instance_id: state for instance_id, state in found.items() if state in TERMINAL})
        left = None if deadline is None else deadline - time.monotonic()
        if len(settled) == len(ids) or (left is not None and left <= 0):
            return {instance_id: settled.get(instance_id, State.SENSING) for instance_id in ids}
        time.sleep(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, _LOOKS[1])


def look(database: Database, instance_ids: Collection[int]) -> dict[int, State]:
    """Return the state of each instance.

    :raises Unknown: when there is no such instance.
    """
    ids = list(instance_ids)
    found: dict[int, State] = {}
    for instance_id in ids:
        if not 0 < instance_id < 2**63:  # no database could be asked for it
            raise Unknown(f"there is no instance {instance_id}: it was never registered")
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        found |= database.read(lambda connection, some=some: looking.states(connection, some))  # type: ignore[misc]
    for instance_id in ids:
        if instance_id not in found:
            raise Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")
    return found


def cancel(database: Database, instance_id: int, reason: str) -> tuple[State, Flushed]:
    """Call an instance off; return its state, which is another one if it had settled before.

    :raises Unknown: when there is no such instance.
    """
    look(database, [instance_id])
    flushed = call_off(database, {instance_id: sanitised(reason)})
    return look(database, [instance_id])[instance_id], flushed
