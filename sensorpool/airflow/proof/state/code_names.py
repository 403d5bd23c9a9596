"""The names that the code of a function uses, of its module and of what it imports; read from its bytecode."""

import opcode
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

_GLOBALS = frozenset(opcode.opmap[name] for name in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"))
_LOAD, _IMPORT, _CONST = (opcode.opmap[name] for name in ("LOAD_GLOBAL", "IMPORT_NAME", "LOAD_CONST"))
_SMALL, _EXTENDED = opcode.opmap.get("LOAD_SMALL_INT", -1), opcode.opmap["EXTENDED_ARG"]
_DEEPEST = 8


class Names(NamedTuple):
    """The names in code.

    :param of_module: global names.
    :param attributes: names of attributes of any object, and all other names.
    :param imported: paths of modules, each with the level of a relative import, and the names imported from it.
    """

    of_module: frozenset[str]
    attributes: frozenset[str]
    imported: frozenset[tuple[str, int, tuple[str, ...]]]


@lru_cache(4_096)
def names_in(code: CodeType) -> Names:
    """Return the names in code, and in the functions that it defines."""
    codes = list(_with_nested(code, _DEEPEST))
    found = [found for part in codes for found in _found_in(part)]
    return Names(
        frozenset(name for name in found if isinstance(name, str)),
        frozenset(name for part in codes for name in part.co_names),
        frozenset(name for name in found if not isinstance(name, str)),
    )


def _with_nested(code: CodeType, depth: int) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts if depth else ():
        if isinstance(constant, CodeType):
            yield from _with_nested(constant, depth - 1)


def _found_in(code: CodeType) -> Iterator[Any]:
    names, constants = code.co_names, code.co_consts
    last: list[Any] = [0, None]  # the two constants before an import: its level, and the imported names
    more = 0
    raw = code.co_code
    for operation, low in zip(raw[::2], raw[1::2], strict=True):
        argument, more = low | more, 0
        if operation in _GLOBALS:
            yield names[argument >> 1 if operation == _LOAD else argument]
        elif operation == _EXTENDED:
            more = argument << 8
        elif operation in (_CONST, _SMALL):
            last = [last[1], argument if operation == _SMALL else constants[argument]]
        elif operation == _IMPORT:
            level, taken = last
            yield names[argument], level if type(level) is int else 0, taken if type(taken) is tuple else ()


def modules_of(names: Names, package: str) -> Iterator[dict[str, Any]]:
    """Yield the dicts of the modules that code imports, if they have been imported.

    :param package: the package of the code.
    """
    for path, level, taken in names.imported:
        if level:
            base = package.rsplit(".", level - 1)[0] if level > 1 else package
            whole = f"{base}.{path}".rstrip(".")
        else:
            whole = path
        for name in (whole, *(f"{whole}.{part}" for part in taken)):
            module = sys.modules.get(name)
            if type(getattr(module, "__dict__", None)) is dict:
                yield vars(module)
