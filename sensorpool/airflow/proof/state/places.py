"""The places of classes, functions and their data: a module, and a path from there.

Most have one by their names. A lambda, a closure that a factory has made, or a class of a function is found by what
holds it: a global name, a default, a cell, an attribute; in a container or an object it is the n-th there (``name@n``).
"""

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from sensorpool.airflow.proof.state.held_code import NOTHING, code_in, unwatched

Place = tuple[str, str]
QUALNAME: Any = vars(type)["__qualname__"].__get__  # a metaclass may override it
_NTH = "@"


def place_of(code: Any) -> Place:
    """Return the place of a class or function by its names, which may lead to another one."""
    if type(code) is types.FunctionType:
        return str(code.__globals__.get("__name__")), code.__qualname__
    return str(vars(code).get("__module__")), QUALNAME(code)


def is_at(code: Any, module: str, path: str) -> bool:
    """Whether a path leads to a class or function, or to what decorates it."""
    try:
        found: Any = sys.modules[module]
        for name in path.split("."):
            found = bare(vars(found)[name])
        while found is not code and type(found) is types.FunctionType:
            found = vars(found).get("__wrapped__")
    except Exception:  # there is nothing, or it is odd
        return False
    return found is code


def codes_at(value: Any, path: str, is_ours: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions that a value is or holds, each with its path."""
    for number, code in enumerate(code_in([value], is_ours)):
        yield path if code is value else f"{path}{_NTH}{number}", code


def step(found: Any, name: str, is_ours: Callable[[str], bool]) -> Any:
    """Return what stands under a name of a path.

    :raises Exception: when there is nothing.
    """
    name, *numbers = name.split(_NTH)
    parts = held_by(found) | vars(found) if type(found) is types.FunctionType else vars(found)
    found = parts[name]
    for number in numbers:
        found = list(code_in([found], is_ours))[int(number)]
    return bare(found)


def shown(path: str) -> str:
    """Return a path for people."""
    return ".".join(name.partition(_NTH)[0] for name in path.split("."))


def bare(value: Any) -> Any:
    """Return the function of a static method or class method, and what a watched attribute of a class stands for.

    :return: any other value as it is; None for an attribute that the class has only while it is watched.
    """
    value = unwatched(value)
    if value is NOTHING:
        return None
    kind = type(value)
    return value.__func__ if kind is staticmethod or kind is classmethod else value


def held_by(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function holds beside its code: defaults of arguments, closure cells, attributes."""
    defaults = function.__defaults__ or ()
    if not (defaults or function.__kwdefaults__ or function.__closure__ or vars(function)):
        return {}
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    found = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=False))
    found |= function.__kwdefaults__ or {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # the cell is still empty
            found[name] = None
    return found | {name: value for name, value in vars(function).items() if not name.startswith("__")}
