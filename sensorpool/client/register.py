"""Register checked registrations: upsert the groups and insert the instances, a thousand in a transaction.

Every registration takes the next version of its group under the lock of the group's row, so within a group the order of
versions is the order of commits. A result that was observed before an instance was registered is never applied to it: a
fact carries the version that was loaded before its poke began (`settle`).
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sensorpool.client.rows import rows_of
from sensorpool.client.validate import CheckedRegistration
from sensorpool.config.settings import Settings
from sensorpool.errors import InDoubt, KeyConflict, Refused, Unreachable
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import State
from sensorpool.model.values import Flushed, Key, Registered
from sensorpool.settle.flush import cancel_in
from sensorpool.settle.settler import Settler
from sensorpool.store import registering, troubles
from sensorpool.store.database_errors import cause_of, is_data_error

AT_ONCE = 1_000  # registrations in one transaction
_LATE = 1.0  # seconds after which a load may have missed the registration


class _Barred(Exception):
    """A registration of the batch is refused, unless it exists already."""


@dataclass(slots=True)
class RegisteredBatch:
    """The result of one batch of registrations."""

    instances: list[Registered]
    superseded: list[Flushed]
    is_late: bool = False  # the batch took so long that a load may have missed it

    @property
    def opened(self) -> list[Registered]:
        """The instances whose group is new."""
        return [instance for instance in self.instances if instance.opened]


def register(settler: Settler, checked: Sequence[CheckedRegistration], settings: Settings) -> RegisteredBatch:
    """Register a batch, all of it or nothing, in one transaction.

    The same key, try and context returns the existing instance. The same key and try with another context, or a lower
    try than a registered one, is refused. A higher try cancels the lower ones.

    :raises KeyConflict: when a registration is refused for its key; nothing is kept.
    :raises Refused: when the database cannot hold it, or an existing row is in its way; nothing is kept.
    :raises Unreachable: when the database does not answer; nothing is kept.
    :raises InDoubt: when the answer to the COMMIT is lost; instances that are kept are found again by their keys.
    """
    _check_among_themselves(checked)
    try:
        return _Batch(settler, checked, settings).commit()
    except _Barred as barred:
        raise Refused(str(barred)) from None
    except Unreachable as error:
        if not error.in_doubt:
            raise
        keys = [each.key for each in checked]
        others = f" and {len(keys) - 1} others" if len(keys) > 1 else ""
        said = f"{error}; whether {spell(keys[0])}{others} got registered is open: register again under the same key"
        raise InDoubt(said, keys) from error
    except Exception as error:
        if is_data_error(error) or isinstance(error, IntegrityError):
            raise Refused(f"the database refuses {spell(checked[0].key)}: {one_line(cause_of(error))}") from error
        raise


def spell(key: Key) -> str:
    """Return a key as text for people."""
    mapped = f"[{key.map_index}]" if key.map_index >= 0 else ""
    return f"{key.dag_id}.{key.task_id}{mapped} of {key.run_id}, try {key.try_number}"


class _Batch:
    """Registrations that go into the database in one transaction, in two attempts: the first, and any further one."""

    def __init__(self, settler: Settler, checked: Sequence[CheckedRegistration], settings: Settings) -> None:
        self._settler = settler
        self._database = settler.database
        self._checked = checked
        self._settings = settings
        self._by_key = {each.key: each for each in checked}
        self._chosen = [key for key, each in self._by_key.items() if not each.is_fresh]
        self._started = time.monotonic()

    def commit(self) -> RegisteredBatch:
        """Run the first attempt, and further ones if it met a fault or existing registrations.

        :raises _Barred: when a registration is refused that does not exist already.
        """
        commit = partial(self._settler.commit, committed=self._committed, kept=_is_kept)
        try:
            return commit(self._first_attempt, again=self._further_attempt)
        except _Barred:
            if not self._database.read(registering.has_tries, self._chosen):
                raise
        return commit(self._further_attempt)  # an existing instance is returned, barred or not

    def _first_attempt(self, connection: Connection) -> RegisteredBatch:
        """Insert all registrations. If one exists already, which is rare, its unique key fails the attempt."""
        return self._insert(connection, {})

    def _further_attempt(self, connection: Connection) -> RegisteredBatch:
        """Find the existing registrations, perhaps of an attempt whose answer was lost; insert the others."""
        return self._insert(connection, self._find(connection))

    def _committed(self, done: RegisteredBatch) -> list[Flushed]:
        failpoint("register.after_commit")
        done.is_late = time.monotonic() - self._started > min(_LATE, self._settings.commit_overlap / 2)
        return done.superseded

    def _find(self, connection: Connection) -> dict[Key, Registered]:
        """Find the existing registrations.

        :raises KeyConflict: when one of them waits for another condition.
        """
        found: dict[Key, Registered] = {}
        for key, row in registering.known(connection, self._by_key.keys()).items():
            identity = self._by_key[key].identity
            if (row.op_classpath, row.poke_context) != (identity.op_classpath, identity.poke_context):
                raise KeyConflict(
                    f"{spell(key)} is registered already, waiting for something else (instance {row.id}): "
                    "use another key or a higher try_number"
                )
            found[key] = row.instance
        return found

    def _insert(self, connection: Connection, known: dict[Key, Registered]) -> RegisteredBatch:
        """Insert the new registrations, and cancel the lower tries of all."""
        fresh = [each for key, each in self._by_key.items() if key not in known]
        failpoint("register.before")
        made = self._join(connection, fresh) if fresh else {}
        # the locks are held now: a try that was registered at the same time is seen here
        superseded = _superseded(connection, self._chosen)
        flushed = [cancel_in(self._database, connection, superseded)] if superseded else []
        failpoint("register.before_commit")
        instances = made | known
        return RegisteredBatch([instances[each.key] for each in self._checked], flushed)

    def _join(self, connection: Connection, fresh: Sequence[CheckedRegistration]) -> dict[Key, Registered]:
        """Make or join the groups, and insert the instances; return them.

        :raises _Barred: when a condition is quarantined, or a digest belongs to another context.
        """
        groups, instances = rows_of(
            fresh,
            tick_ms=self._settings.tick_ms,
            shard_code_upper_limit=self._settings.shard_code_upper_limit,
        )
        chosen = [each.key for each in fresh if not each.is_fresh]
        now = self._database.given_now(connection)
        made = registering.join(connection, groups, instances, chosen, now)
        if len(made) != len(fresh):
            raise _Barred(_why_barred(connection, fresh))
        return {instance.key: instance for instance in made}


def _is_kept(connection: Connection, done: RegisteredBatch) -> bool:
    """Whether an attempt whose COMMIT had no answer was committed."""
    made = next((instance for instance in done.instances if instance.created), None)
    return made is not None and registering.is_there(connection, made.id, made.key)


def _superseded(connection: Connection, chosen: Sequence[Key]) -> dict[int, str]:
    """Return the lower tries that are to be cancelled, by id, each with the reason.

    :param chosen: the keys that callers chose; a fresh key has no other tries.
    :raises KeyConflict: when there is a higher try.
    """
    numbers = {key.task: key.try_number for key in chosen}
    superseded: dict[int, str] = {}
    for other in registering.other_tries(connection, chosen):
        ours = numbers[other.key.task]
        if other.key.try_number > ours:
            late = other.key._replace(try_number=ours)
            raise KeyConflict(
                f"{spell(late)} comes too late: try {other.key.try_number} is registered already (instance {other.id})"
            )
        if other.state == State.SENSING:
            superseded[other.id] = f"superseded by try {ours}"
    return superseded


def _why_barred(connection: Connection, fresh: Iterable[CheckedRegistration]) -> str:
    rows = troubles.quarantined(connection, [each.identity.digest for each in fresh])
    reasons = {bytes(row["digest"]): row["reason"] for row in rows}
    for each in fresh:
        if (reason := reasons.get(each.identity.digest)) is not None:
            return (
                f"{spell(each.key)} waits for something in quarantine ({each.identity.op_classpath}: {reason}); "
                "once it is mended, `sensorpool release` lets it out"
            )
    return "two different contexts have one digest; they cannot share a group"


def _check_among_themselves(checked: Sequence[CheckedRegistration]) -> None:
    """Refuse a batch that names a task instance twice, with one try or with several."""
    seen: set[tuple[str, str, str, int]] = set()
    for each in checked:
        if each.key.task in seen:
            raise KeyConflict(f"{spell(each.key)} stands in the same batch twice")
        seen.add(each.key.task)
