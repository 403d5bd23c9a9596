"""What registering hands to the database, and what comes back. Times are spans from the database's now."""

from typing import NamedTuple

from sensorpool.model import Key, Milliseconds


class NewGroup(NamedTuple):
    """A group to make or to join, and how many join it."""

    digest: bytes
    hashcode: int
    shardcode: int
    members: int
    op_classpath: str
    poke_context: str
    poke_interval: Milliseconds
    phase: int
    next_deadline: Milliseconds


class NewInstance(NamedTuple):
    """An instance to insert, and the digest of the group that it joins."""

    joined_digest: bytes
    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int
    external_id: str | None
    logical_date: Milliseconds | None
    operator: str
    execution_context: str
    step: Milliseconds
    timeout: Milliseconds
    deadline: Milliseconds
    on_settled: str | None


class Joined(NamedTuple):
    """An instance that was inserted, its group, and the version at which it joined it."""

    key: Key
    id: int
    group_id: int
    version: int


class Try(NamedTuple):
    """A try of a task instance."""

    key: Key
    id: int
    state: str
