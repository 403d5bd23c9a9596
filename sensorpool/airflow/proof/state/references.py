"""What the code of a company's class references by name: functions, the functions that these call, and their data.

Names are read from the code, and looked up in dicts. Nothing is called: no property, no ``__getattr__``, no import.
What code finds in another way (``globals()``, ``getattr`` of a module) is not seen.
"""

import builtins
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial, partialmethod
from typing import Any, NamedTuple

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof.state.code_names import modules_of, names_in
from sensorpool.airflow.proof.state.held_code import attributes_of
from sensorpool.airflow.proof.state.places import Place, bare, codes_at, held_by, is_at, place_of, step
from sensorpool.airflow.proof.state.pure_functions import is_pure

Cached: Any = type(lru_cache(len))
_MOST = 400  # classes and functions
_MOST_NAMES = 1_000
_DERIVED = "__subclasses__"
COMPANIES = "__companies__"  # an attribute of a class that has code of other packages than its own (`judged_class`)
_NO_COMPANYS = frozenset({"airflow", "sensorpool", "_pytest", "pytest", "structlog"}) | sys.stdlib_module_names
_INSTALLED = ("/site-packages/", "/dist-packages/")
_CODE = (type, types.ModuleType, types.BuiltinFunctionType, types.GenericAlias, types.UnionType)
# compared by id: a metaclass may forbid to hash its classes
_PLAIN = frozenset(map(id, (type(None), bool, int, float, str, bytes, dict, list, tuple, set, types.MethodType)))
# a flag's combinations are made when they are first named
_LEFT_OUT = ("__", "_abc_", "_value2member_map_", "poke_context_fields")


class References(NamedTuple):
    """What the code of a class references.

    :param company: `company_of` its class.
    :param names: global names, each with the dict of its module.
    :param places: by id module and path of the classes and functions that are found elsewhere than by their names.
    """

    company: frozenset[str]
    classes: tuple[type, ...]
    functions: tuple[types.FunctionType, ...]
    names: tuple[tuple[str, dict[str, Any]], ...]
    places: dict[int, Place]

    def data(self) -> Iterator[tuple[str, str, Any]]:
        """Yield module, path and current value of the data; None for a name without a value."""
        for cls in self.classes:
            module, path = self.places.get(id(cls)) or place_of(cls)
            for name, value in class_data(cls).items():
                yield module, f"{path}.{name}", value
        for function in self.functions:
            module, path = self.places.get(id(function)) or place_of(function)
            for name, value in function_data(function).items():
                if value is not None:  # a default of None holds no state
                    yield module, f"{path}.{name}", value
        is_ours = partial(is_of_company, self.company)
        for name, names in self.names:
            value = names.get(name)
            if not is_code(value, is_ours):
                yield str(names.get("__name__")), name, value


class _Unfinished(Exception):
    """Has the references of a class, without those to modules that a thread imports right now; no cache keeps them."""

    def __init__(self, found: References) -> None:
        self.found = found


def references_of(cls: type) -> References:
    """Return the references of a class; they are collected again when more modules have been imported."""
    try:
        return _of(cls, len(sys.modules))
    except _Unfinished as unfinished:
        return unfinished.found


@lru_cache(256)
def _of(cls: type, _: int) -> References:
    company = company_of(cls)
    is_ours = partial(is_of_company, company)
    queue: deque[Any] = deque([cls])
    classes: list[type] = []
    functions: list[types.FunctionType] = []
    names: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
    seen: set[int] = set()
    places: dict[int, Place] = {}

    def put(value: Any, module: str, path: str) -> None:
        for place, code in codes_at(value, path, is_ours):
            queue.append(code)
            if not is_at(code, *place_of(code)):
                places.setdefault(id(code), (module, place))

    with_derived, is_unfinished = False, False
    while queue and len(classes) + len(functions) < _MOST and len(names) < _MOST_NAMES:
        found = queue.popleft()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if is_half_imported(_module_of(found)):
            is_unfinished = True
        elif type(found) is types.FunctionType:
            module_name, path = places.get(id(found)) or place_of(found)
            for name, value in {"__wrapped__": vars(found).get("__wrapped__"), **held_by(found)}.items():
                put(value, module_name, f"{path}.{name}")
            if is_ours(found.__globals__.get("__name__")):
                functions.append(found)
                for name, module in _named(found, company):
                    if is_half_imported(module):
                        is_unfinished = True
                        continue
                    put(module.get(name), str(module.get("__name__")), name)
                    if not is_code(module.get(name), is_ours):
                        names.setdefault((id(module), name), (name, module))
                if not with_derived and _DERIVED in names_in(found.__code__).attributes:
                    with_derived = True
                    queue.extend(derived for each in classes for derived in _derived_from(each))
        elif is_ours(vars(found).get("__module__")):
            classes.append(found)
            queue.extend((type(found), *found.__mro__))
            module_name, path = places.get(id(found)) or place_of(found)
            for name, value in attributes_of(found).items():
                put(value, module_name, f"{path}.{name}")
            queue.extend(_derived_from(found) if with_derived else ())
    references = References(company, tuple(classes), tuple(functions), tuple(names.values()), places)
    if is_unfinished:
        raise _Unfinished(references)
    return references


def _module_of(found: Any) -> dict[str, Any]:
    if type(found) is types.FunctionType:
        return found.__globals__
    module = sys.modules.get(str(vars(found).get("__module__")))
    return {} if module is None else vars(module)


def is_half_imported(module: dict[str, Any]) -> bool:
    """Whether a thread imports a module, given as its dict, right now: it has yet to get its names and values."""
    return getattr(module.get("__spec__"), "_initializing", False) is True


def _derived_from(cls: Any) -> list[type]:
    """Return the classes that code finds by ``__subclasses__``; other sensors have a state of their own."""
    return [] if is_operator(cls) else [derived for derived in type.__subclasses__(cls) if not is_operator(derived)]


def _named(function: types.FunctionType, company: frozenset[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names that a function uses of its module, of modules that it holds, and of modules that it imports."""
    own, names = function.__globals__, names_in(function.__code__)
    modules = deque(modules_of(names, str(own.get("__package__") or "")))
    for name in names.of_module:
        if name in own or not hasattr(builtins, name):
            yield name, own
        _add_module(modules, own.get(name))
    seen = {id(own)}
    while modules and len(seen) < _MOST:
        module = modules.popleft()
        if id(module) in seen or not is_of_company(company, module.get("__name__")):
            continue
        seen.add(id(module))
        if is_half_imported(module):
            yield "", module  # it has yet to get its names
            continue
        for _, __, taken in names.imported:
            yield from ((name, module) for name in taken if name in module)
        for name in names.attributes:
            if name in module:
                yield name, module
                _add_module(modules, module[name])


def _add_module(modules: deque[dict[str, Any]], value: Any) -> None:
    if issubclass(type(value), types.ModuleType):
        modules.append(types.ModuleType.__getattribute__(value, "__dict__"))


def company_of(cls: type) -> frozenset[str]:
    """Return the company of a class: the path of its package, or of its provider of Airflow."""
    return vars(cls).get(COMPANIES) or frozenset({package_of(str(vars(cls).get("__module__")))})


def is_of_company(company: frozenset[str], module: Any) -> bool:
    """Whether a module is the company's: of the package of its class, or of one that is not installed."""
    package = package_of(str(module))
    return (package in company and package != "airflow") or _is_local(package)


def package_of(module: str) -> str:
    """Return the path of a module's package, or of its provider of Airflow."""
    # the providers of a company have their modules in Airflow's package: airflow.providers.acme
    return ".".join(module.split(".")[: 3 if module.startswith("airflow.providers.") else 1])


@cache
def _is_local(package: str) -> bool:
    if package in _NO_COMPANYS or (module := sys.modules.get(package)) is None:
        return False
    paths = [vars(module).get("__file__"), *list(vars(module).get("__path__") or ())[:4]]
    known = [path for path in paths if isinstance(path, str)]
    return bool(known) and not any(map(is_installed, known))


def is_written_here(module: str) -> bool:
    """Whether a module that this process has is neither installed nor Airflow's, ours or Python's own."""
    file = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    return isinstance(file, str) and not is_installed(file) and module.partition(".")[0] not in _NO_COMPANYS


def is_installed(path: str) -> bool:
    """Whether a file is that of an installed package."""
    return any(installed in path for installed in _INSTALLED)


def is_code(value: Any, is_ours: Callable[[str], bool]) -> bool:
    """Whether a value is code and no data: a class, a function, a property.

    :param is_ours: whether objects of a module are data, even if they stand for methods.
    """
    kind = type(value)
    if kind is types.FunctionType:
        return True
    if id(kind) in _PLAIN or (kind is types.BuiltinMethodType and _is_bound(value)):
        return False
    if kind is Cached:
        return is_pure(value.__wrapped__)  # its results follow from arguments and constants
    if kind is partialmethod:
        return False
    if issubclass(kind, _CODE) or _is_typing(kind):
        return True
    if not any("__get__" in vars(base) for base in kind.__mro__) or _keeps_values(kind):
        return False
    module = str(vars(kind).get("__module__"))
    return module.partition(".")[0] in _NO_COMPANYS or not is_ours(module)


def _is_bound(method: Any) -> bool:
    """Whether a method of a built-in type is that of one object, such as a dict's."""
    owner = type(method.__self__)
    return owner is not type(None) and not issubclass(owner, type | types.ModuleType)


def _keeps_values(kind: Any) -> bool:
    """Whether a descriptor accepts values: it may keep one for each sensor."""
    return any(type(vars(base).get("__set__")) is types.FunctionType for base in kind.__mro__)


def _is_typing(kind: type) -> bool:
    return vars(kind).get("__module__") == "typing"


def is_operator(cls: type) -> bool:
    """Whether a class is one of operators; its metaclass is not called."""
    return any(base is BaseOperator for base in cls.__mro__)


def class_data(cls: type) -> dict[str, Any]:
    """Return the data among a class's own attributes."""
    known = operators.base_attributes() if is_operator(cls) else frozenset[str]()
    found: dict[str, Any] = {}
    for name, value in attributes_of(cls).items():
        kind = type(value)
        if kind is types.FunctionType or kind is Cached or name in known or name.startswith(_LEFT_OUT):
            continue  # the cache of a method has entries by sensor
        inner = bare(value)
        if inner is value or type(inner) is Cached:
            found[name] = inner
    is_ours = partial(is_of_company, company_of(cls))
    return {name: value for name, value in found.items() if not is_code(value, is_ours)}


def function_data(function: types.FunctionType) -> dict[str, Any]:
    """Return the data of a function beside its code: defaults of arguments, closure cells, attributes."""
    if not (found := held_by(function)):
        return found
    is_ours = partial(is_of_company, frozenset({package_of(str(function.__globals__.get("__name__")))}))
    return {name: value for name, value in found.items() if not is_code(value, is_ours)}


def value_at(cls: type, module: str, path: str) -> Any:
    """Return the value at a path of a module, code as well; None if there is none.

    :param cls: the class that references it.
    :raises Exception: when a part of the path does not exist.
    """
    is_ours = partial(is_of_company, company_of(cls))
    found: Any = sys.modules[module]
    *way, last = path.split(".")
    for name in way:
        found = step(found, name, is_ours)
    while type(found) is types.FunctionType:
        parts = function_data(found)
        found = None if last in parts else vars(found).get("__wrapped__")
        if found is None:
            return parts.get(last)
    return bare(vars(found).get(last))
