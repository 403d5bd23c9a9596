"""What the code of a company's class reaches by name: its functions, those that they call, and the data of all these.

Names are found in the code, and looked up in dicts: nothing is called, so no property, ``__getattr__`` or import is
met. What code finds in another way (``globals()``, ``getattr`` of a module) is not seen.
"""

import builtins
import functools
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow import compat
from sensorpool.airflow.proof.code_names import modules_of, names_in
from sensorpool.airflow.proof.pure_functions import is_pure

Cached: Any = type(lru_cache(len))
_MOST = 400  # classes and functions
_MOST_NAMES = 1_000
_NO_COMPANYS = frozenset({"airflow", "sensorpool", "_pytest", "pytest", "structlog"}) | sys.stdlib_module_names
_INSTALLED = ("/site-packages/", "/dist-packages/")
_CODE = (type, types.ModuleType, types.BuiltinFunctionType, types.GenericAlias, types.UnionType, functools.partial)
# by their ids: a metaclass may forbid to hash its classes
_PLAIN = frozenset(map(id, (type(None), bool, int, float, str, bytes, dict, list, tuple, set, types.MethodType)))
_WRAPPERS = (staticmethod, classmethod, Cached, types.MethodType, functools.partial, cached_property, property)
QUALNAME: Any = vars(type)["__qualname__"].__get__  # a metaclass may have another one
_LEFT_OUT = ("__", "_abc_", "poke_context_fields")


class Reached(NamedTuple):
    """What the code of a class reaches.

    :param company: the first part of the path of its class.
    :param names: of modules: a name, and the module's dict.
    """

    company: str
    classes: tuple[type, ...]
    functions: tuple[types.FunctionType, ...]
    names: tuple[tuple[str, dict[str, Any]], ...]

    def data(self) -> Iterator[tuple[str, str, Any]]:
        """Yield module, path and value of the data, as they stand now; None for what is not there."""
        for cls in self.classes:
            for name, value in data_of(cls).items():
                yield str(vars(cls)["__module__"]), f"{QUALNAME(cls)}.{name}", value
        for function in self.functions:
            for name, value in parts_of(function).items():
                if value is not None:  # a default that says nothing
                    yield str(function.__globals__.get("__name__")), f"{function.__qualname__}.{name}", value
        for name, module in self.names:
            value = module.get(name)
            if not is_code(value):
                yield str(module.get("__name__")), name, value


def of(cls: type) -> Reached:
    """Return what a class reaches; it is looked for again when more has been imported."""
    return _of(cls, len(sys.modules))


@lru_cache(256)
def _of(cls: type, _: int) -> Reached:
    company = str(cls.__module__).partition(".")[0]
    waiting: deque[Any] = deque([cls])
    classes: list[type] = []
    functions: list[types.FunctionType] = []
    names: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
    met: set[int] = set()
    while waiting and len(classes) + len(functions) < _MOST and len(names) < _MOST_NAMES:
        found = waiting.popleft()
        if id(found) in met:
            continue
        met.add(id(found))
        if type(found) is types.FunctionType:
            waiting.extend(_code_in([vars(found).get("__wrapped__")]))
            if is_of(company, found.__globals__.get("__name__")):
                functions.append(found)
                for name, module in _named(found, company):
                    waiting.extend(_code_in([module.get(name)]))
                    if not is_code(module.get(name)):
                        names.setdefault((id(module), name), (name, module))
                waiting.extend(_code_in(parts_of(found).values()))
        elif is_of(company, vars(found).get("__module__")):
            classes.append(found)
            waiting.extend(found.__mro__)
            waiting.extend(_code_in(list(vars(found).values())))
    return Reached(company, tuple(classes), tuple(functions), tuple(names.values()))


def _named(function: types.FunctionType, company: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a function names of its module, of modules that it knows, and of those that it imports."""
    own, names = function.__globals__, names_in(function.__code__)
    modules = deque(modules_of(names, str(own.get("__package__") or "")))
    for name in names.of_module:
        if name in own or not hasattr(builtins, name):
            yield name, own
        _add_module(modules, own.get(name))
    seen = {id(own)}
    while modules and len(seen) < _MOST:
        module = modules.popleft()
        if id(module) in seen or not is_of(company, module.get("__name__")):
            continue
        seen.add(id(module))
        for _, __, taken in names.imported:
            yield from ((name, module) for name in taken if name in module)
        for name in names.attributes:
            if name in module:
                yield name, module
                _add_module(modules, module[name])


def _add_module(modules: deque[dict[str, Any]], value: Any) -> None:
    if issubclass(type(value), types.ModuleType):
        modules.append(types.ModuleType.__getattribute__(value, "__dict__"))


def _code_in(values: Iterable[Any], depth: int = 4) -> Iterator[Any]:
    """Yield the functions and classes in values: those that they wrap, and the class of an object."""
    for value in values:
        kind = type(value)
        if kind is types.FunctionType or (issubclass(kind, type) and value is not type):
            yield value
        elif depth and any(kind is wrapper for wrapper in _WRAPPERS):
            names = ("__func__", "__wrapped__", "__self__", "func", "fget", "fset", "fdel")
            yield from _code_in([getattr(value, name, None) for name in names], depth - 1)
        elif kind is not type and vars(kind).get("__module__", "builtins") != "builtins":
            yield kind


def is_of(company: str, module: Any) -> bool:
    """Whether a module is a company's: of the package of its class, or not an installed one."""
    package = str(module).partition(".")[0]
    return package == company != "airflow" or _is_local(package)


@cache
def _is_local(package: str) -> bool:
    if package in _NO_COMPANYS or (module := sys.modules.get(package)) is None:
        return False
    paths = [vars(module).get("__file__"), *list(vars(module).get("__path__") or ())[:4]]
    told = [path for path in paths if isinstance(path, str)]
    return bool(told) and not any(installed in path for path in told for installed in _INSTALLED)


def is_code(value: Any) -> bool:
    """Whether a value is code, and no data: a class, a function, a property."""
    kind = type(value)
    if kind is types.FunctionType:
        return True
    if id(kind) in _PLAIN:
        return False
    if kind is Cached:
        return is_pure(value.__wrapped__)  # what it holds is worked out of arguments
    if issubclass(kind, _CODE) or _is_typing(kind):
        return True
    return any("__get__" in vars(base) for base in kind.__mro__) and not _keeps_values(kind)


def _keeps_values(kind: Any) -> bool:
    """Whether a descriptor takes values: it may keep them by their sensor."""
    return any(type(vars(base).get("__set__")) is types.FunctionType for base in kind.__mro__)


def _is_typing(kind: type) -> bool:
    return vars(kind).get("__module__") == "typing"


def is_operator(cls: type) -> bool:
    """Whether a class is one of operators, without asking its metaclass."""
    return any(base is BaseOperator for base in cls.__mro__)


def data_of(cls: type) -> dict[str, Any]:
    """Return the data that stands in a class itself."""
    known = compat.base_attributes() if is_operator(cls) else frozenset[str]()
    found: dict[str, Any] = {}
    for name, value in list(vars(cls).items()):
        kind = type(value)
        if kind is types.FunctionType or kind is Cached or name in known or name.startswith(_LEFT_OUT):
            continue  # a method's cache is kept by sensor
        inner = _bare(value)
        if inner is value or type(inner) is Cached:
            found[name] = inner
    return {name: value for name, value in found.items() if not is_code(value)}


def _bare(value: Any) -> Any:
    kind = type(value)
    return value.__func__ if kind is staticmethod or kind is classmethod else value


def parts_of(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function has beside its code: defaults of its arguments, closure cells, attributes."""
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
        except ValueError:  # it is empty yet
            found[name] = None
    found |= {name: value for name, value in vars(function).items() if not name.startswith("__")}
    return {name: value for name, value in found.items() if not is_code(value)}


def at(module: str, path: str) -> Any:
    """Return what stands under a path of a module; None for nothing.

    :raises Exception: when it leads through what there is not.
    """
    found: Any = sys.modules[module]
    *way, last = path.split(".")
    for name in way:
        found = _bare(vars(found)[name])
    while type(found) is types.FunctionType:
        parts = parts_of(found)
        found = None if last in parts else vars(found).get("__wrapped__")
        if found is None:
            return parts.get(last)
    value = vars(found).get(last)
    inner = _bare(value)
    return None if is_code(inner) else inner
