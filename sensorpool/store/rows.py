"""The rows of registrations on their way into the database. Times are milliseconds from the database's now."""

from typing import NamedTuple

from sensorpool.model.states import State
from sensorpool.model.values import Key, Registered


class NewGroup(NamedTuple):
    """A group to make or to join, and how many join it."""

    digest: bytes
    hashcode: int
    shardcode: int
    members: int
    op_classpath: str
    poke_context: str
    poke_interval: int
    phase: int
    next_deadline: int
    family: int | None
    backend: str | None
    location: str | None
    logical_date: int | None


class NewInstance(NamedTuple):
    """An instance to insert, and the digest of the group that it joins."""

    joined_digest: bytes
    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int
    external_id: str | None
    logical_date: int | None
    operator: str
    execution_context: str
    step: int
    timeout: int
    deadline: int
    on_settled: str | None


def is_later_try(key: Key) -> bool:
    """Whether an earlier try may exist. Of two tries of one task, this is true for at least one."""
    return key.try_number != 1


class KnownTry(NamedTuple):
    """The row of a try of a task instance that is registered already."""

    id: int
    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int
    op_classpath: str
    poke_context: str
    group_id: int
    hashcode: int
    shardcode: int
    state: str

    @property
    def key(self) -> Key:
        """Its key."""
        return Key(self.dag_id, self.task_id, self.run_id, self.map_index, self.try_number)

    @property
    def instance(self) -> Registered:
        """The instance, as one that existed already."""
        return Registered(self.id, self.group_id, self.hashcode, self.shardcode, State(self.state), False, self.key)
