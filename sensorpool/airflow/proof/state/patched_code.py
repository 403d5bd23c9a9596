"""Code that a DAG file has put in the place of a class's own: the pool imports the class, and has no such code."""

import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.held_code import attributes_of

OF_DAG_FILES = re.compile(r"unusual_prefix_|__main__$|__mp_main__$")


def reason_against(cls: type) -> str | None:
    """Return why the pool has another class than this process; None if nothing is known that says so."""
    for base in cls.__mro__:
        for name, value in attributes_of(base).items():
            if any(map(_is_of_dag_file, _functions(value))):
                return f"its {name} is not that of its class: the DAG file has replaced it"
    if known_sensors.is_stateless(cls):
        return None
    patched = next(filter(_is_of_dag_file, references.references_of(cls).functions), None)
    return None if patched is None else f"its class calls {patched.__qualname__}, which the DAG file has put there"


def _functions(value: Any) -> Iterator[Any]:
    if type(value) is FunctionType:
        yield value
    elif type(value) in (staticmethod, classmethod):
        yield value.__func__
    elif type(value) is property:
        yield from (value.fget, value.fset)


def _is_of_dag_file(function: Any) -> bool:
    is_function = type(function) is FunctionType
    return is_function and OF_DAG_FILES.match(str(function.__globals__.get("__name__"))) is not None
