"""Whether a poke asks for what only its task has: names, DAG, params. In the pool a sensor is built without a task.

Two tasks with equal arguments share a poke; one that looks for `<task_id>.done` must not. What is read is the code of
the class's own methods, as far as its poke gets from one to the next by name.
"""

import functools
import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

OF_THE_TASK = frozenset(
    {"dag", "dag_id", "get_dag", "node_id", "params", "task_display_name", "task_group", "task_id"}
    | {"downstream_list", "downstream_task_ids", "upstream_list", "upstream_task_ids"}
)


def read_by(cls: type) -> str | None:
    """Return the name of something that only a task has and the pokes of a class ask for, if there is any."""
    seen: set[str] = set()
    waiting = ["poke"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for code in _codes(cls, name):
            asked = set(_names(code))
            if found := asked & OF_THE_TASK:
                return min(found)
            waiting.extend(asked)
    return None


def _codes(cls: type, name: str) -> Iterator[CodeType]:
    """Yield the code of a method or property, in the class and in those of its bases that are not every sensor's."""
    for base in cls.__mro__:
        if base in BaseSensorOperator.__mro__ or name not in vars(base):
            continue
        for function in _functions(vars(base)[name]):
            code = getattr(inspect.unwrap(function), "__code__", None)
            if code is not None:
                yield code


def _functions(found: Any) -> Iterator[Any]:
    match found:
        case property():
            yield from (each for each in (found.fget, found.fset) if each is not None)
        case functools.cached_property():
            yield found.func
        case classmethod() | staticmethod():
            yield found.__func__
        case _ if callable(found):
            yield found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
