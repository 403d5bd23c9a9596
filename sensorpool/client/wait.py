"""Wait for instances, and cancel them.

An instance as `register` returned it is more than its id. A database that was restored from an older backup gives ids
out again: then another instance has that id, and what happens to it is not told.
"""

import math
import operator
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sensorpool.errors import Refused, Unknown, Unreachable
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.model.states import TERMINAL, State
from sensorpool.model.values import Instance
from sensorpool.poke.answer import sanitised
from sensorpool.settle.settler import Settler
from sensorpool.store import inspecting
from sensorpool.store.codes import cause_of, is_data_error
from sensorpool.store.database import Database

_LOOKS = (0.05, 1.0)  # seconds between two looks: the first, and the longest
PATIENCE = 300.0  # seconds for which a wait survives an outage of the database: a restart, a failover
AT_ONCE = 10_000  # ids in one statement


def wait(
    database: Database, instance_ids: Iterable[int | Instance] | Instance, timeout: float | timedelta | None = None
) -> dict[int, State]:
    """Wait until all instances are settled, or ``timeout`` seconds have passed; return the state of each by its id.

    :raises Refused: when an argument is neither an id nor an `Instance`; or the timeout is no number.
    :raises Unknown: when there is no such instance, or an `Instance` is not the one that has its id now.
    :raises Unreachable: when the database does not answer at first, or later for the timeout or `PATIENCE`.
    """
    named = _named(instance_ids)
    ids = list(named)
    seconds = _seconds(timeout)
    deadline = None if seconds is None else time.monotonic() + seconds
    settled: dict[int, State] = {}
    pause = _LOOKS[0]
    answered: float | None = None
    while True:
        away: Unreachable | None = None
        try:
            left_over = {instance_id: named[instance_id] for instance_id in ids if instance_id not in settled}
            found = look(database, left_over)
            ended = {instance_id: state for instance_id, state in found.items() if state in TERMINAL}
            _check_keys(database, {instance_id: named[instance_id] for instance_id in ended})
        except Unreachable as error:
            if answered is None or time.monotonic() - answered >= PATIENCE:
                raise
            away = error
        else:
            answered = time.monotonic()
            settled.update(ended)
        left = None if deadline is None else deadline - time.monotonic()
        if away is not None and left is not None and left <= 0:
            raise away  # the states of the instances are not known
        if len(settled) == len(ids) or (left is not None and left <= 0):
            return {instance_id: settled.get(instance_id, State.SENSING) for instance_id in ids}
        time.sleep(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, _LOOKS[1])


def look(database: Database, named: Mapping[int, Instance | None]) -> dict[int, State]:
    """Return the state of each instance.

    :param named: by id the instance as `register` returned it, or None.
    :raises Unknown: when there is no such instance, or one that waits for another condition.
    """
    ids = list(named)
    found: dict[int, tuple[State, int]] = {}
    for instance_id in ids:
        if not 0 < instance_id < 2**63:  # a database cannot look for such a number
            shown = str(instance_id) if abs(instance_id) < 10**20 else "with so large a number"
            raise Unknown(f"there is no instance {shown}: it was never registered")
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        found |= database.read(inspecting.conditions, some)
    for instance_id, instance in named.items():
        if instance_id not in found:
            raise Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")
        if instance is not None and instance.hashcode != found[instance_id][1]:
            raise _another(instance)
    return {instance_id: state for instance_id, (state, _) in found.items()}


def _check_keys(database: Database, named: Mapping[int, Instance | None]) -> None:
    """Check that instances still have the ids that they were registered with.

    :raises Unknown: when another one has the id of one of them.
    """
    instances = [instance for instance in named.values() if instance is not None]
    for start in range(0, len(instances), AT_ONCE):
        some = instances[start : start + AT_ONCE]
        keys = database.read(inspecting.keys, [instance.id for instance in some])
        for instance in some:
            if keys.get(instance.id, instance.key) != instance.key:  # one that was pruned since it was read has ended
                raise _another(instance)


def _another(instance: Instance) -> Unknown:
    return Unknown(
        f"there is no instance {instance.id} of {printable(str(instance.key))[:200]} any more: another has that id "
        "since the pool's database was restored or made anew"
    )


def cancel(settler: Settler, instance: int | Instance, reason: str) -> State:
    """Cancel an instance; return its state, which is another one if it had settled before.

    :raises Refused: when the argument is neither an id nor an `Instance`; or the database cannot hold the reason.
    :raises Unknown: when there is no such instance, or an `Instance` is not the one that has its id now.
    """
    instance_id = _id(instance)
    named = {instance_id: instance if isinstance(instance, Instance) else None}
    if not isinstance(reason, str):
        raise Refused(f"a reason is text, not {printable(repr(reason))[:80]}")
    look(settler.database, named)
    _check_keys(settler.database, named)
    try:
        settler.cancel({instance_id: sanitised(reason)})
    except Exception as error:
        if is_data_error(error):
            raise Refused(f"the database refuses that reason: {one_line(cause_of(error))}") from error
        raise
    return look(settler.database, named)[instance_id]


def _named(instances: Any) -> dict[int, Instance | None]:
    """Return by id what the argument names: an iterable of ids or instances, or one instance.

    :raises Unknown: when two instances have the same id: one of them was registered before a restore.
    """
    if isinstance(instances, Instance):
        return {instances.id: instances}
    if isinstance(instances, str | bytes):
        raise Refused(f"instances are named by a list of their ids, not {printable(repr(instances))[:80]}")
    try:
        found = iter(instances)
    except TypeError:
        raise Refused(f"instances are named by a list of their ids, not {printable(repr(instances))[:80]}") from None
    named: dict[int, Instance | None] = {}
    for each in found:
        instance_id, instance = _id(each), each if isinstance(each, Instance) else None
        known = named.setdefault(instance_id, instance)
        if known is None:
            named[instance_id] = instance
        elif instance is not None and instance.key != known.key:
            raise _another(known)
    return named


def _id(named: Any) -> int:
    if isinstance(named, Instance):
        named = named.id
    try:
        if not isinstance(named, bool):
            return operator.index(named)
    except TypeError:
        pass
    raise Refused(
        f"an instance is named by its id, a whole number, or as register returned it, not {printable(repr(named))[:80]}"
    )


def _seconds(timeout: Any) -> float | None:
    """Read a span of seconds, or a timedelta."""
    if timeout is None:
        return None
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    try:
        if isinstance(timeout, int | float) and not isinstance(timeout, bool) and not math.isnan(timeout):
            return float(timeout)
    except OverflowError:
        pass
    raise Refused("timeout must be a number of seconds")
