"""Wait for instances, and cancel them.

An instance as `register` returned it is more than its id. A database that was restored from an older backup may give
ids out again: then another instance has that id, and what happens to it is not told.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sensorpool.errors import Refused, Unknown, Unreachable
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.model.json_text import read_json
from sensorpool.model.states import TERMINAL, State
from sensorpool.model.values import Key, Registered, Result
from sensorpool.poke.answer import sanitised
from sensorpool.settle.settler import Settler
from sensorpool.store import inspecting, results
from sensorpool.store.database import Database
from sensorpool.store.database_errors import cause_of, is_data_error

_LOOKS = (0.05, 1.0)  # seconds between two looks: the first, and the longest
PATIENCE = 300.0  # seconds for which a wait survives an outage of the database: a restart, a failover
AT_ONCE = 10_000  # ids in one statement
_LONGEST = 10**12  # seconds

Named = int | Registered
"""An instance by its id, or as `register` returned it."""


class Wait:
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

        :raises Unknown: when there is no such instance, or another has its id.
        :raises Unreachable: when the database does not answer at first, or later for the timeout or `PATIENCE`.
        """
        away: Unreachable | None = None
        try:
            found = states(self._database, [each for each in self._named if each not in self._settled])
            ended = {each: state for each, state in found.items() if state in TERMINAL}
            check_keys(self._database, {each: self._named[each] for each in ended})
            self._settled |= ended
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


def row(database: Database, instance_id: int) -> Any:
    """Return the whole row of an instance.

    :raises Unknown: when there is no such instance.
    """
    found = database.read(inspecting.instance, instance_id) if _may_exist(instance_id) else None
    if found is None:
        raise _unknown(instance_id)
    return found


def find(database: Database, instance: Named) -> Registered:
    """Return an instance as it is now.

    :raises Refused: when the argument is neither an id nor an `Instance`.
    :raises Unknown: when there is no such instance, or another has its id.
    """
    [instance_id] = asked = named(_one(instance))
    found = row(database, instance_id)
    check_keys(database, asked)
    return Registered(
        id=found["id"],
        group_id=found["group_id"],
        hashcode=found["hashcode"],
        shardcode=found["shardcode"],
        state=State(found["state"]),
        created=False,
        key=Key(*(found[name] for name in Key._fields)),
    )


def result(database: Database, instance: Named) -> Result | None:
    """Return how the wait of an instance ended; None while it waits.

    :raises Refused: when the argument is neither an id nor an `Instance`.
    :raises Unknown: when there is no such instance, or another has its id.
    """
    [instance_id] = asked = named(_one(instance))
    settled = database.read(results.read, [instance_id]) if _may_exist(instance_id) else None
    if not settled:
        raise _unknown(instance_id)
    check_keys(database, asked)
    [found] = settled
    if found.state not in TERMINAL:
        return None
    return Result(
        state=found.state,
        ending=found.ending,
        reason=found.reason,
        xcom_value=None if found.xcom_value is None else read_json(found.xcom_value),
        settled_at=datetime.fromtimestamp(found.settled_at / 1000, tz=UTC),
    )


def states(database: Database, ids: Collection[int]) -> dict[int, State]:
    """Return the state of each instance by its id.

    :raises Unknown: when one of them does not exist.
    """
    wanted, found = list(ids), dict[int, State]()
    for instance_id in wanted:
        if not _may_exist(instance_id):
            raise _unknown(instance_id)
    for start in range(0, len(wanted), AT_ONCE):
        found |= database.read(inspecting.states, wanted[start : start + AT_ONCE])
    for instance_id in wanted:
        if instance_id not in found:
            raise _unknown(instance_id)
    return found


def check_keys(database: Database, asked: Mapping[int, Registered | None]) -> None:
    """Check that instances still have the ids that they were registered with.

    :raises Unknown: when another one has the id of one of them.
    """
    instances = [instance for instance in asked.values() if instance is not None]
    for start in range(0, len(instances), AT_ONCE):
        some = instances[start : start + AT_ONCE]
        keys = database.read(inspecting.keys, [instance.id for instance in some])
        for instance in some:
            if keys.get(instance.id, instance.key) != instance.key:  # one that was pruned since it was read has ended
                raise _another(instance)


def cancel(settler: Settler, instance: Named, reason: str) -> State:
    """Cancel an instance; return its state, which is another one if it had settled before.

    :raises Refused: when the argument is neither an id nor an `Instance`; or the database cannot hold the reason.
    :raises Unknown: when there is no such instance, or another has its id.
    """
    [instance_id] = asked = named(_one(instance))
    if not isinstance(reason, str):
        raise Refused(f"a reason is text, not {printable(repr(reason))[:80]}")
    states(settler.database, asked)
    check_keys(settler.database, asked)
    try:
        settler.cancel({instance_id: sanitised(reason)})
    except Exception as error:
        if is_data_error(error):
            raise Refused(f"the database refuses that reason: {one_line(cause_of(error))}") from error
        raise
    return states(settler.database, [instance_id])[instance_id]


def named(instances: Any) -> dict[int, Registered | None]:
    """Return by id what an argument names: an id, an instance, or an iterable of them.

    :raises Refused: when it is none of these.
    :raises Unknown: when two instances have the same id: one of them was registered before a restore.
    """
    if isinstance(instances, int | Registered):
        instances = (instances,)
    if isinstance(instances, str | bytes) or not isinstance(instances, Iterable):
        raise Refused(f"instances are named by a list of their ids, not {printable(repr(instances))[:80]}")
    found: dict[int, Registered | None] = {}
    for each in map(_one, instances):
        if isinstance(each, int):
            found.setdefault(each, None)
        elif (known := found.get(each.id)) is not None and known.key != each.key:
            raise _another(known)
        else:
            found[each.id] = each
    return found


def _one(instance: Any) -> Named:
    if not isinstance(instance, int | Registered) or isinstance(instance, bool):
        said = printable(repr(instance))[:80]
        raise Refused(f"an instance is named by its id, a whole number, or as register returned it, not {said}")
    return instance


def _may_exist(instance_id: int) -> bool:
    """Whether a database can look for an id."""
    return 0 < instance_id < 2**63


def _unknown(instance_id: int) -> Unknown:
    if not _may_exist(instance_id):
        shown = str(instance_id) if abs(instance_id) < 10**20 else "with so large a number"
        return Unknown(f"there is no instance {shown}: it was never registered")
    return Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")


def _another(instance: Registered) -> Unknown:
    return Unknown(
        f"there is no instance {instance.id} of {printable(str(instance.key))[:200]} any more: another has that id "
        "since the pool's database was restored or made anew"
    )


def seconds_of(timeout: Any) -> float | None:
    """Return a timeout, a number or a timedelta, in seconds; None: there is none.

    :raises Refused: when it is neither.
    """
    if timeout is None:
        return None
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not abs(timeout) <= _LONGEST:
        raise Refused("timeout must be a number of seconds")
    return float(timeout)
