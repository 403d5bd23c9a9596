"""Lists of instances for people: which ones, the newest first, and how many there are in all."""

from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, or_, select

from sensorpool.model.states import Ending, State
from sensorpool.model.values import Milliseconds
from sensorpool.store.dialects import count_rows
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s

_LATE = select(g.c.id).where(g.c.late_since.is_not(None))
_ESCAPE = "!"
_CONTEXT = "poke_context"
_SEARCHED = ("dag_id", "task_id", "run_id", "op_classpath", _CONTEXT, "reason")
_COLUMNS = (
    *("id", "state", "ending", "dag_id", "task_id", "run_id", "map_index", "try_number"),
    *("op_classpath", "start_date", "timeout_at", "settled_at", "reason"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which instances are wanted; None: any.

    :param text: a part of the task's names, the class path, the context or the reason, in small or capital letters.
    :param past: only those that still wait, with a deadline before this time.
    :param late: only those that wait for a condition that is later than usual.
    :param before: only those with a lower id: the next page.
    :param contexts: whether contexts are read and searched.
    """

    text: str | None = None
    state: State | None = None
    ending: Ending | None = None
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int | None = None
    past: Milliseconds | None = None
    late: bool = False
    before: int | None = None
    contexts: bool = True

    def texts(self) -> list[str]:
        """Return the texts that are looked for."""
        return [value for field in fields(self) if isinstance(value := getattr(self, field.name), str)]

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return what holds for each instance that is wanted, on this page or another one."""
        equal = ("state", "ending", "dag_id", "task_id", "run_id", "map_index")
        found = [s.c[name] == value for name in equal if (value := getattr(self, name)) is not None]
        if self.text is not None:
            names = [name for name in _SEARCHED if self.contexts or name != _CONTEXT]
            found.append(or_(*(s.c[name].icontains(self.text, autoescape=True, escape=_ESCAPE) for name in names)))
        if self.past is not None:
            found += [s.c.state == State.SENSING, s.c.timeout_at < self.past]
        if self.late:
            found += [s.c.state == State.SENSING, s.c.group_id.in_(_LATE)]
        return found


def instances(connection: Connection, selection: Selection, most: int) -> list[Any]:
    """List instances, the newest first."""
    names = [*_COLUMNS, *([_CONTEXT] if selection.contexts else [])]
    query = select(*(s.c[name] for name in names)).where(*selection.conditions())
    if selection.before is not None:
        query = query.where(s.c.id < selection.before)
    return list(connection.execute(query.order_by(s.c.id.desc()).limit(most)).mappings())


def count(connection: Connection, selection: Selection) -> int:
    """Return how many instances are wanted, on all pages."""
    return int(connection.execute(select(count_rows).select_from(s).where(*selection.conditions())).scalar_one())
