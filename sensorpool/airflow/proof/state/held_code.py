"""The functions and classes that values hold: wrappers, containers such as a registry, and objects of a company.

Nothing of a value is called. Of containers the first parts are looked at.
"""

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any

_DEEPEST = 4
_WIDEST = 200  # parts of one container
_MOST = 1_000  # parts of one value
_CONTAINERS: tuple[Any, ...] = (list, tuple, deque, set, frozenset)
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_WRAPPERS: tuple[Any, ...] = (
    *(staticmethod, classmethod, property, cached_property, types.MethodType),
    *(functools.partial, functools.partialmethod, type(functools.cache(len))),
)
_WRAPPED = ("__func__", "__self__", "fget", "fset", "fdel", "func", "args", "keywords")


class StandIn:
    """Stands in a class for an attribute whose reads are watched.

    :param was: the class's own attribute of that name; `NOTHING` if it has none.
    """

    __slots__ = ("was",)

    def __init__(self, was: object) -> None:
        self.was = was


NOTHING = object()


def attributes_of(cls: type) -> dict[str, Any]:
    """Return the attributes of a class that are its own, as its code defines them, and not as they are watched."""
    found = {name: unwatched(value) for name, value in list(vars(cls).items())}
    return {name: value for name, value in found.items() if value is not NOTHING}


def unwatched(value: Any) -> Any:
    """Return what a value of a class stands for; any other value as it is."""
    while issubclass(type(value), StandIn):
        value = value.was
    return value


def code_in(values: Iterable[Any], is_ours: Callable[[str], bool]) -> Iterator[Any]:
    """Yield the functions and classes that values are or hold, and the classes of objects.

    :param is_ours: whether objects of a module are looked into.
    """
    for value in values:
        yield from _Search(is_ours).find(value, _DEEPEST)


class _Search:
    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._left = _MOST

    def find(self, value: Any, depth: int) -> Iterator[Any]:
        kind: Any = type(value)
        self._left -= 1
        if kind is types.FunctionType or (issubclass(kind, type) and value is not type):
            yield value
            return
        module = str(vars(kind).get("__module__", "builtins"))
        if module != "builtins":
            yield kind
        if depth:
            for part in self._parts(value, kind, module):
                # compared by id: a metaclass may forbid to hash its classes
                if self._left > 0 and not any(type(part) is plain for plain in _PLAIN):
                    yield from self.find(part, depth - 1)

    def _parts(self, value: Any, kind: Any, module: str) -> list[Any]:
        parts: list[Any] = []
        if issubclass(kind, dict):
            for pair in islice(dict.items(value), _WIDEST):
                parts += pair
        base = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
        if base is not None:
            parts += islice(base.__iter__(value), _WIDEST)
        wrapper = next((wrapper for wrapper in _WRAPPERS if issubclass(kind, wrapper)), None)
        if wrapper is not None:
            members = [vars(wrapper)[name] for name in _WRAPPED if name in vars(wrapper)]
            parts += [member.__get__(value) for member in members]
        if wrapper is not None or (module != "builtins" and self._is_ours(module)):
            parts += _attributes(value, kind)
        return parts


def slots_of(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the slots of a class and its bases, with their names."""
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType:
                yield name, member


def _attributes(value: Any, kind: Any) -> Iterator[Any]:
    for _, member in slots_of(kind):
        try:
            yield member.__get__(value)
        except AttributeError:  # the slot is empty
            continue
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except Exception:  # it has none, or its class is odd
        return
    yield from islice(dict.values(attributes), _WIDEST)
