"""Wait for instances, and cancel them.

An instance as `register` returned it is more than its id. A database that was restored from an older backup gives ids
out again: then another instance has that id, and what happens to it is not told.
"""

import math
import operator
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sensorpool.errors import Refused, Unknown, Unreachable
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.model.json_text import read_json
from sensorpool.model.states import TERMINAL, State
from sensorpool.model.values import Instance, Key, Result
from sensorpool.poke.answer import sanitised
from sensorpool.settle.settler import Settler
from sensorpool.store import inspecting, results
from sensorpool.store.database import Database
from sensorpool.store.database_errors import cause_of, is_data_error

_LOOKS = (0.05, 1.0)  # seconds between two looks: the first, and the longest
PATIENCE = 300.0  # seconds for which a wait survives an outage of the database: a restart, a failover
AT_ONCE = 10_000  # ids in one statement

Named = int | Instance
"""An instance by its id, or as `register` returned it."""


def wait(
    database: Database, instance_ids: Named | Iterable[Named], timeout: float | timedelta | None = None
) -> dict[int, State]:
    """Wait until all instances are settled, or ``timeout`` seconds have passed; return the state of each by its id.

    :raises Refused: when an argument is neither an id nor an `Instance`; or the timeout is no number.
    :raises Unknown: when there is no such instance, or an `Instance` is not the one that has its id now.
    :raises Unreachable: when the database does not answer at first, or later for the timeout or `PATIENCE`.
    """
    waiting = Waiting(database, instance_ids, timeout)
    while (pause := waiting.look()) is not None:
        time.sleep(pause)
    return waiting.states


class Waiting:
    """A wait for instances, look by look, so that a thread or an event loop can sleep between two of them.

    :raises Refused: when an argument is neither an id nor an `Instance`; or the timeout is no number.
    """

    def __init__(
        self, database: Database, instance_ids: Named | Iterable[Named], timeout: float | timedelta | None
    ) -> None:
        self._database = database
        self._named = named(instance_ids)
        seconds = seconds_of(timeout)
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._settled: dict[int, State] = {}
        self._pause = _LOOKS[0]
        self._answered: float | None = None

    @property
    def states(self) -> dict[int, State]:
        """The state of each instance by its id, as the last look found it."""
        return {instance_id: self._settled.get(instance_id, State.SENSING) for instance_id in self._named}

    def look(self) -> float | None:
        """Look once; return the seconds until the next look, or None when the wait is over.

        :raises Unknown: when there is no such instance, or an `Instance` is not the one that has its id now.
        :raises Unreachable: as `wait` does.
        """
        away: Unreachable | None = None
        try:
            self._settled |= self._ended()
        except Unreachable as error:
            if self._answered is None or time.monotonic() - self._answered >= PATIENCE:
                raise
            away = error
        else:
            self._answered = time.monotonic()
        left = None if self._deadline is None else self._deadline - time.monotonic()
        if away is not None and left is not None and left <= 0:
            raise away  # the states of the instances are not known
        if len(self._settled) == len(self._named) or (left is not None and left <= 0):
            return None
        pause, self._pause = self._pause, min(self._pause * 1.5, _LOOKS[1])
        return pause if left is None else min(pause, left)

    def _ended(self) -> dict[int, State]:
        """Return the states of the instances that have ended since the last look."""
        left_over = {each: instance for each, instance in self._named.items() if each not in self._settled}
        found = look(self._database, left_over)
        ended = {instance_id: state for instance_id, state in found.items() if state in TERMINAL}
        check_keys(self._database, {instance_id: self._named[instance_id] for instance_id in ended})
        return ended


def find(database: Database, instance_id: Named) -> Instance:
    """Return an instance as it is now, by its id.

    :raises Refused: when the argument is neither an id nor an `Instance`.
    :raises Unknown: when there is no such instance, or an `Instance` is not the one that has its id now.
    """
    number = _id(instance_id)
    row = database.read(inspecting.instance, number) if 0 < number < 2**63 else None
    if row is None:
        raise _none(number)
    found = Instance(
        id=number,
        group_id=row["group_id"],
        hashcode=row["hashcode"],
        shardcode=row["shardcode"],
        state=State(row["state"]),
        created=False,
        key=Key(*(row[name] for name in Key._fields)),
    )
    if isinstance(instance_id, Instance) and instance_id.key != found.key:
        raise _another(instance_id)
    return found


def result(database: Database, instance: Named) -> Result | None:
    """Return how the wait of an instance ended; None while it waits.

    :raises Refused: when the argument is neither an id nor an `Instance`.
    :raises Unknown: when there is no such instance any more, or another one has its id.
    """
    number = _id(instance)
    settled = database.read(results.read, [number]) if 0 < number < 2**63 else None
    if not settled:
        raise _none(number)
    [found] = settled
    if isinstance(instance, Instance) and found.key != instance.key:
        raise _another(instance)
    if found.state not in TERMINAL:
        return None
    return Result(
        state=found.state,
        ending=found.ending,
        reason=found.reason,
        xcom_value=None if found.xcom_value is None else read_json(found.xcom_value),
        settled_at=datetime.fromtimestamp(found.settled_at / 1000, tz=UTC),
    )


def look(database: Database, named: Mapping[int, Instance | None]) -> dict[int, State]:
    """Return the state of each instance.

    :param named: by id the instance as `register` returned it, or None.
    :raises Unknown: when there is no such instance, or one that waits for another condition.
    """
    ids = list(named)
    found: dict[int, tuple[State, int]] = {}
    for instance_id in ids:
        if not 0 < instance_id < 2**63:  # a database cannot look for such a number
            raise _none(instance_id)
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        found |= database.read(inspecting.conditions, some)
    for instance_id, instance in named.items():
        if instance_id not in found:
            raise _none(instance_id)
        if instance is not None and instance.hashcode != found[instance_id][1]:
            raise _another(instance)
    return {instance_id: state for instance_id, (state, _) in found.items()}


def check_keys(database: Database, named: Mapping[int, Instance | None]) -> None:
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


def _none(instance_id: int) -> Unknown:
    if not 0 < instance_id < 2**63:
        shown = str(instance_id) if abs(instance_id) < 10**20 else "with so large a number"
        return Unknown(f"there is no instance {shown}: it was never registered")
    return Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")


def _another(instance: Instance) -> Unknown:
    return Unknown(
        f"there is no instance {instance.id} of {printable(str(instance.key))[:200]} any more: another has that id "
        "since the pool's database was restored or made anew"
    )


def cancel(settler: Settler, instance: Named, reason: str) -> State:
    """Cancel an instance; return its state, which is another one if it had settled before.

    :raises Refused: when the argument is neither an id nor an `Instance`; or the database cannot hold the reason.
    :raises Unknown: when there is no such instance, or an `Instance` is not the one that has its id now.
    """
    instance_id = _id(instance)
    named = {instance_id: instance if isinstance(instance, Instance) else None}
    if not isinstance(reason, str):
        raise Refused(f"a reason is text, not {printable(repr(reason))[:80]}")
    look(settler.database, named)
    check_keys(settler.database, named)
    try:
        settler.cancel({instance_id: sanitised(reason)})
    except Exception as error:
        if is_data_error(error):
            raise Refused(f"the database refuses that reason: {one_line(cause_of(error))}") from error
        raise
    return look(settler.database, named)[instance_id]


def named(instances: Any) -> dict[int, Instance | None]:
    """Return by id what the argument names: an id, an instance, or an iterable of them.

    :raises Unknown: when two instances have the same id: one of them was registered before a restore.
    """
    if isinstance(instances, Instance):
        return {instances.id: instances}
    if isinstance(instances, int):
        return {_id(instances): None}
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


def seconds_of(timeout: Any) -> float | None:
    """Return a timeout, a number or a timedelta, in seconds; None: there is none.

    :raises Refused: when it is neither.
    """
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
