"""Sensors with an ``execute`` of their own around that of their base.

A task leaves its slot by an exception through that method, and enters the method again when it resumes. So code before
the call of the base's method would run twice, and a ``finally`` or ``with`` around the call would end while the task
still waits. Such a sensor runs natively. So does one whose later code reads what the last poke may have set in the
sensor, for that poke was made in the pool. A method that calls its base's first, and then uses only the returned value
and the sensor's arguments, does the same as natively.
"""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.proof import known_sensors

_SAFEGUARD = ExecutorSafeguard.decorator(lambda: None).__code__

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
"""What `ast.parse` raises; a ``SystemError`` where another parse came between, before Python 3.11.8 (gh-106905)."""


def reason_against(sensor: Any) -> str | None:
    """Return why a sensor cannot leave its slot in the middle of its ``execute``; None if it can."""
    if "execute" in vars(sensor):
        return "its execute was replaced"
    cls: type = type(sensor)
    return _reason_against(cls)


def continues_after_wait(cls: type) -> bool:
    """Whether a class may do more after its base's ``execute`` has returned: then it always ends on a worker.

    Classes of reviewed providers do not, except those that `known_sensors` names.
    """
    return known_sensors.works_afterwards(cls) or bool(_unreviewed(cls))


@cache
def _reason_against(cls: type) -> str | None:
    for base in _unreviewed(cls):
        rest = _after_super(vars(base)["execute"])
        if rest is None:
            return f"the execute of {base.__qualname__} does more than wait: a part of it would be done twice"
        if not _asks_for_arguments_only(rest, cls):
            return f"the execute of {base.__qualname__} goes on with what its last poke may have left"
    return None


def _unreviewed(cls: type) -> list[type]:
    """Return the classes below BaseSensorOperator that have an ``execute`` and were not reviewed."""
    bases = cls.__mro__[: cls.__mro__.index(BaseSensorOperator)] if BaseSensorOperator in cls.__mro__ else cls.__mro__
    return [base for base in bases if "execute" in vars(base) and not known_sensors.is_reviewed(base)]


def _after_super(execute: Any) -> tuple[str, list[ast.stmt]] | None:
    """Return the name of a method's first argument, and the statements after the call of its base's method.

    None if that call is not its first statement, or stands within another statement.
    """
    execute = _bare(execute)
    try:
        source = inspect.getsource(execute.__code__)
        (function,) = ast.parse(textwrap.dedent(source)).body
    except (AttributeError, OSError, TypeError, *UNREADABLE):
        return None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or not function.args.args:
        return None
    first, *rest = function.body
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and rest:
        first, *rest = rest  # the docstring
    match first:
        case (
            ast.Return(value=call)
            | ast.Expr(value=call)
            | ast.Assign(targets=[ast.Name()], value=call)
            | ast.AnnAssign(target=ast.Name(), value=call)
        ) if _is_super_execute(call):
            return function.args.args[0].arg, rest
    return None


def _bare(execute: Any) -> Any:
    """Return the method without Airflow's wrapper around each ``execute``; None if it has another wrapper."""
    if getattr(execute, "__code__", None) is _SAFEGUARD:
        execute = execute.__wrapped__
    return None if hasattr(execute, "__wrapped__") else execute


def _asks_for_arguments_only(rest: tuple[str, list[ast.stmt]], cls: type) -> bool:
    """Whether statements read of their sensor only its log and its constructor's arguments."""
    sensor, statements = rest
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    given = {"log", *(name for constructor in constructors for name in inspect.signature(constructor).parameters)}
    nodes = [node for statement in statements for node in ast.walk(statement)]
    harmless = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in given
    }
    names = [node for node in nodes if isinstance(node, ast.Name)]
    return not any(
        node.id in ("super", "__class__") or (node.id == sensor and id(node) not in harmless) for node in names
    )


def _is_super_execute(call: Any) -> bool:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr="execute"),
            args=[ast.Name()],
            keywords=[],
        ):
            return True
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr="execute"),
            args=[],
            keywords=[ast.keyword(arg="context", value=ast.Name())],
        ):
            return True
    return False
