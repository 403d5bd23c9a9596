"""Whose an instance is, as the pool's database has it now.

A trigger knows its instance by the id. A database that was restored from an older backup gives ids out again, so the
instance of that id may be another task's.
"""

from typing import Any
from uuid import UUID


def ti_id_of(task_instance: Any) -> str | None:
    """Return the id of the try of a task instance; None where Airflow gives the trigger none."""
    ti_id = getattr(task_instance, "id", None)
    return None if ti_id is None else _spelt(ti_id)


def is_of(ti_id: str | None, row: Any) -> bool:
    """Whether an instance was registered for a task instance; true for one that is not known.

    :param row: of `inspecting.waiters`; its external_id is the id of the task instance in each version.
    """
    return (
        ti_id is None or row.external_id == ti_id or (row.external_id is not None and _spelt(row.external_id) == ti_id)
    )


def _spelt(ti_id: object) -> str:
    try:
        return str(UUID(str(ti_id)))
    except ValueError:
        return str(ti_id)
