"""The class by which a sensor is judged: its own, unless functions among its arguments are poked with it.

A class of a provider may have been reviewed; a function that it is given has not. So such a sensor is judged as a class
of the company whose function it is: a class is made that has the functions as methods, and the sensor's class as an
attribute. Nothing is constructed from it, and it is no subclass, for a company's class may count its subclasses.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any, cast

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.state import references

_DEEPEST = 24
_MODULE = "(callables)"  # that of the made classes; no module has such a name


def judged_class_of(operator: BaseOperator) -> type:
    """Return the class by which an operator is judged."""
    cls: Any = type(operator)
    if known_sensors.declares_fields(cls):
        return cast(type, cls)
    given = operators.constructor_arguments(operator)
    names = given.keys() - operators.base_arguments()
    found = dict.fromkeys(function for name in sorted(names) for function in functions_in(given[name]))
    return cast(type, judged_class(cls, tuple(found)))


@lru_cache(1_000)
def judged_class(cls: Any, functions: tuple[FunctionType, ...]) -> Any:
    """Return the class by which sensors of a class with these functions among their arguments are judged."""
    if not functions or known_sensors.declares_fields(cls):
        return cls
    companies = {references.package_of(str(function.__globals__.get("__name__"))) for function in functions}
    if not known_sensors.is_reviewed(cls):
        companies |= references.company_of(cls)
    attributes: dict[str, Any] = {f"callable_{number}": each for number, each in enumerate(functions)}
    made = {"__module__": _MODULE, references.COMPANIES: frozenset({_MODULE, *companies}), "sensor_class": cls}
    return type(cls.__name__, (), attributes | made)


def functions_in(value: Any, depth: int = _DEEPEST) -> Iterator[FunctionType]:
    """Yield the functions that an argument is or holds."""
    if type(value) is FunctionType:
        yield value
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from functions_in(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from functions_in(item, depth - 1)
