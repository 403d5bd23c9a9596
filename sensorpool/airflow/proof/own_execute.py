"""Sensors with an ``execute`` of their own around that of their base.

A task that leaves its slot leaves by an exception through that method, and enters it again when it resumes. So what the
method does before it calls its base's would be done twice, and a ``finally`` or ``with`` around that call would end
while the task still waits. Such a sensor runs natively. So does one that goes on with what its last poke may have left
in it: where the task resumes, that poke was made in the pool. One that calls its base's first of all, and goes on with
what that returns and with its arguments, is as it would be natively.
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


def why_not(sensor: Any) -> str | None:
    """Return why a sensor cannot leave its slot in the midst of its ``execute``, if it cannot."""
    if "execute" in vars(sensor):
        return "its execute was replaced"
    cls: type = type(sensor)
    return _why_not(cls)


def goes_on(cls: type) -> bool:
    """Whether a class may do more once its base's ``execute`` has returned: then no success is written without it.

    Those of the providers that were read do not, save the ones that `known_sensors` names.
    """
    return known_sensors.works_afterwards(cls) or bool(_unread(cls))


@cache
def _why_not(cls: type) -> str | None:
    for base in _unread(cls):
        rest = _after_super(vars(base)["execute"])
        if rest is None:
            return f"the execute of {base.__qualname__} does more than wait: a part of it would be done twice"
        if not _asks_for_arguments_only(rest, cls):
            return f"the execute of {base.__qualname__} goes on with what its last poke may have left"
    return None


def _unread(cls: type) -> list[type]:
    """Return the classes between a sensor's and every sensor's that have an ``execute`` and were not read."""
    bases = cls.__mro__[: cls.__mro__.index(BaseSensorOperator)] if BaseSensorOperator in cls.__mro__ else cls.__mro__
    return [base for base in bases if "execute" in vars(base) and not known_sensors.was_read(base)]


def _after_super(execute: Any) -> tuple[str, list[ast.stmt]] | None:
    """Return what a method calls its sensor, and its statements after the call of its base's.

    None, if that call is not the first thing that it does, or something is around it.
    """
    execute = _bare(execute)
    try:
        source = inspect.getsource(execute.__code__)
        (function,) = ast.parse(textwrap.dedent(source)).body
    except (AttributeError, OSError, TypeError, ValueError, SyntaxError):
        return None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or not function.args.args:
        return None
    first, *rest = function.body
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and rest:
        first, *rest = rest  # that was its docstring
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
    """Take off what Airflow wraps every ``execute`` in, and None for one that is wrapped in anything else."""
    if getattr(execute, "__code__", None) is _SAFEGUARD:
        execute = execute.__wrapped__
    return None if hasattr(execute, "__wrapped__") else execute


def _asks_for_arguments_only(rest: tuple[str, list[ast.stmt]], cls: type) -> bool:
    """Whether a method asks its sensor for nothing but its log and what its constructor was given."""
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
