"""What operators and their classes consist of: arguments, attributes and methods, Airflow's own and a company's."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.definitions.taskgroup import MappedTaskGroup, TaskGroup

NEXT_INTERVAL = (
    "_get_next_poke_interval"  # the method that BaseSensorOperator.execute calls after a poke that found nothing
)
TRIGGER_TIMEOUT = "Trigger timeout"  # what Airflow says of a trigger whose time is over


def constructor_arguments(sensor: BaseOperator) -> dict[str, Any]:
    """Return the arguments that an operator was constructed with, inherited ones too."""
    return dict(sensor._BaseOperator__init_kwargs)


@contextmanager
def not_deferrable(sensor: BaseOperator) -> Iterator[None]:
    """Have a sensor be as if it had been constructed with ``deferrable=False``, and without an ``execution_timeout``.

    Airflow counts that for each process of a task, and not while it is deferred.
    """
    attributes: dict[str, Any] = vars(sensor)
    before = {name: attributes[name] for name in ("deferrable", "execution_timeout", "_BaseOperator__init_kwargs")}
    attributes["_BaseOperator__init_kwargs"] = {**constructor_arguments(sensor), "deferrable": False}
    attributes["deferrable"], attributes["execution_timeout"] = False, None
    try:
        yield
    finally:
        attributes.update(before)


_last_dag: tuple[Any, int, bool] = (lambda: None, 0, False)  # a weak reference, its tasks, whether any is mapped


def has_mapped_dependants(operator: BaseOperator) -> bool:
    """Whether tasks or groups are mapped over the XCom of an operator.

    Airflow walks the whole DAG for each of its tasks. A DAG without anything mapped is walked once here.

    :raises RuntimeError: when the operator has no DAG.
    """
    global _last_dag
    dag = operator.get_dag()
    if dag is not None:
        last, tasks, is_mapped = _last_dag
        if last() is not dag or tasks != len(dag.task_dict):
            is_mapped = _has_mapped(dag.task_group)
            _last_dag = weakref.ref(dag), len(dag.task_dict), is_mapped
        if not is_mapped:
            return False
    return next(iter(operator.iter_mapped_dependants()), None) is not None


def _has_mapped(group: TaskGroup) -> bool:
    return any(
        isinstance(child, MappedOperator | MappedTaskGroup) or (isinstance(child, TaskGroup) and _has_mapped(child))
        for child in group.children.values()
    )


@cache
def base_arguments() -> frozenset[str]:
    """Return the names of the constructor's arguments that every sensor takes."""
    named = {name for cls in (BaseOperator, BaseSensorOperator) for name in signature(cls.__init__).parameters}
    return frozenset(named | {"default_args", "params", "dag", "task_group"} - {"self", "kwargs"})


@cache
def base_attributes() -> frozenset[str]:
    """Return the names of the attributes that every sensor has."""
    return frozenset(vars(BaseSensorOperator(task_id="sensorpool"))) | frozenset(dir(BaseSensorOperator)) | {"_dag"}


@cache
def task_attributes(cls: type) -> frozenset[str]:
    """Return the names of the attributes in which two tasks of a class with equal own arguments may differ."""
    base: type[BaseOperator] = BaseSensorOperator if issubclass(cls, BaseSensorOperator) else BaseOperator
    names = vars(base(task_id="sensorpool")).keys() | {"_dag", "max_retry_delay"}
    return frozenset(name for name in names if not name.startswith("_BaseOperator__")) - {"_log", "_logger_name"}


def own_attributes(operator: BaseOperator) -> dict[str, Any]:
    """Return the attributes of an operator, without those that every sensor has."""
    cls: Any = type(operator)
    base, slots = base_attributes(), _slots_of(cls)
    kept = {name: getattr(operator, name) for name in slots if hasattr(operator, name)} if slots else {}
    return {
        name: value
        for name, value in (kept | vars(operator)).items()
        if name not in base and not name.startswith(("_BaseOperator__", "_abc_"))
    }


def class_attribute(cls: type, name: str) -> Any:
    """Return the attribute of a class or a base of it, unbound; None if there is none."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def object_attributes(value: object) -> dict[str, Any] | None:
    """Return the attributes of an object, slots included; None if it cannot have any."""
    slots = [name for cls in type(value).__mro__ for name in _slots(cls)]
    if not slots and not hasattr(value, "__dict__"):
        return None
    kept = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return kept | (vars(value) if hasattr(value, "__dict__") else {})


@cache
def _slots_of(cls: type) -> list[str]:
    return [name for base in cls.__mro__ for name in _slots(base)]


def _slots(cls: type) -> list[str]:
    names = vars(cls).get("__slots__", ())
    prefix = f"_{cls.__name__.lstrip('_')}"
    written = [names] if isinstance(names, str) else names
    return [
        f"{prefix}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in written
        if name not in ("__dict__", "__weakref__")
    ]


def overrides(sensor: BaseOperator, method: str) -> bool:
    """Whether an operator, or its class, overrides one of Airflow's methods."""
    return method in vars(sensor) or class_overrides(type(sensor), method)


def class_overrides(cls: type, method: str) -> bool:
    """Whether a class of operators overrides one of Airflow's methods."""
    airflows = getattr(BaseOperator, method, None) or getattr(BaseSensorOperator, method, None)
    return getattr(cls, method, None) is not airflows
