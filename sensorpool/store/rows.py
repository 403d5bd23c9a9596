"""The rows of registrations on their way into the database. Times are milliseconds from the database's now."""

from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from sensorpool.model.values import Key, Registered

# each type with its name in PostgreSQL
Bytes = Annotated[bytes, "bytea"]
Text = Annotated[str, "text"]
Int4 = Annotated[int, "int4"]
Int8 = Annotated[int, "int8"]


class NewGroup(NamedTuple):
    """A group to make or to join, and how many join it."""

    digest: Bytes
    hashcode: Int8
    shardcode: Int4
    members: Int4
    op_classpath: Text
    poke_context: Text
    poke_interval: Int8
    phase: Int8
    next_deadline: Int8
    family: Int8 | None
    backend: Text | None
    location: Text | None
    logical_date: Int8 | None


class NewInstance(NamedTuple):
    """An instance to insert, and the digest of the group that it joins."""

    joined_digest: Bytes
    dag_id: Text
    task_id: Text
    run_id: Text
    map_index: Int4
    try_number: Int4
    external_id: Text | None
    logical_date: Int8 | None
    operator: Text
    execution_context: Text
    step: Int8
    timeout: Int8
    deadline: Int8
    on_settled: Text | None


def column_types(row: type) -> dict[str, str]:
    """Return PostgreSQL's name of the type of each field of a row to insert."""
    hints: dict[str, Any] = get_type_hints(row, include_extras=True)
    return {
        name: next(part.__metadata__[0] for part in (hint, *get_args(hint)) if hasattr(part, "__metadata__"))
        for name, hint in hints.items()
    }


def is_later_try(key: Key) -> bool:
    """Whether an earlier try may exist. Of two tries of one task, this is true for at least one."""
    return key.try_number != 1


class Known(NamedTuple):
    """An instance that is registered already, and what it waits for."""

    instance: Registered
    op_classpath: str
    poke_context: str


class Try(NamedTuple):
    """Another try of a task instance."""

    key: Key
    id: int
    state: str
