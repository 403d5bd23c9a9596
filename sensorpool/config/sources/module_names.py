"""What the top level of a module binds, read from its source: classes with their bases, imports and aliases."""

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from sensorpool.config.sources.module_files import ModuleFile, Unreadable
from sensorpool.model.python_source import UNREADABLE

_POKES = {"poke", "poke_many"}
_MAKES_SENSORS = {"sensorpool.sensor", "sensorpool.sensors.function.sensor"}
_KEPT = 4_096  # modules whose names a process keeps: a forked process reads only the files that have changed


class ClassFacts(NamedTuple):
    """A class statement, or a function that ``sensorpool.sensor`` makes a class of.

    :param bases: its bases, each a dotted name; None: a base that only execution can tell.
    """

    bases: tuple[str | None, ...]
    has_poke: bool


class Target(NamedTuple):
    """What a name stands for: a module, or what is found under further names from there on."""

    module: str
    names: tuple[str, ...] = ()


class ModuleFacts(NamedTuple):
    """The names of a module.

    :param classes: its class statements by name: a name may have several, in branches.
    :param targets: what its other names stand for; None: only execution can tell.
    :param stars: the modules of which it imports all names.
    """

    classes: Mapping[str, tuple[ClassFacts, ...]]
    targets: Mapping[str, tuple[Target | None, ...]]
    stars: tuple[str, ...]


_NOTHING = ModuleFacts({}, {}, ())


def facts_of(module: ModuleFile) -> ModuleFacts:
    """Return the names of a module; a namespace package has none.

    :raises Unreadable: when its source cannot be read, or is no Python of this version.
    """
    if module.origin is None:
        return _NOTHING
    return _facts(module, module.stamp)


@lru_cache(maxsize=_KEPT)
def _facts(module: ModuleFile, _stamp: tuple[int, int]) -> ModuleFacts:
    source = module.source()
    if "class" not in source and "import" not in source:
        return _NOTHING
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes, say: they are for who imports it
            tree = ast.parse(source)
    except UNREADABLE as error:
        place = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise Unreadable(f"{type(error).__name__}{place}: {said}") from None
    return _Reader(module).read(tree.body)


class _Reader:
    def __init__(self, module: ModuleFile) -> None:
        self._name = module.name
        self._package = module.name if module.locations else module.name.rpartition(".")[0]
        self._classes: dict[str, list[ClassFacts]] = {}
        self._targets: dict[str, list[Target | None]] = {}
        self._stars: list[str] = []

    def read(self, body: Iterable[ast.stmt]) -> ModuleFacts:
        for statement in _statements(body):
            self._note(statement)
        return ModuleFacts(_frozen(self._classes), _frozen(self._targets), tuple(self._stars))

    def _note(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            facts = ClassFacts(tuple(_dotted(base) for base in node.bases), _has_poke(node))
            self._classes.setdefault(node.name, []).append(facts)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                self._bind(name, Target(alias.name if alias.asname else name))
        elif isinstance(node, ast.ImportFrom):
            self._note_from(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = _dotted(node.value)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        is_plain = each is target and value is not None and value.partition(".")[0] != each.id
                        self._bind(each.id, Target(self._name, tuple(str(value).split("."))) if is_plain else None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.decorator_list and self._makes_a_sensor(node.decorator_list[0]):
                self._classes.setdefault(node.name, []).append(ClassFacts((), has_poke=True))
            else:
                self._bind(node.name, None)

    def _makes_a_sensor(self, decorator: ast.expr) -> bool:
        """Whether the outermost decorator of a function is ``sensorpool.sensor``, under any name."""
        name, _, rest = (_dotted(decorator) or "").partition(".")
        targets = [".".join([each.module, *each.names]) for each in self._targets.get(name, ()) if each is not None]
        return any(".".join(filter(None, [target, rest])) in _MAKES_SENSORS for target in targets)

    def _note_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parts = self._package.split(".")
            kept = parts[: len(parts) - node.level + 1]
            module = ".".join([*kept, module] if module else kept)
        for alias in node.names:
            if alias.name == "*":
                self._stars.append(module)
            else:
                self._bind(alias.asname or alias.name, Target(module, (alias.name,)) if module else None)

    def _bind(self, name: str, target: Target | None) -> None:
        self._targets.setdefault(name, []).append(target)


def _frozen(lists: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(values) for name, values in lists.items()}


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body and of the branches in it, not of functions and classes."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.TryStar | ast.With | ast.For | ast.While):
            parts = [node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
            parts += [handler.body for handler in getattr(node, "handlers", [])]
            for part in parts:
                yield from _statements(part)


def _has_poke(node: ast.ClassDef) -> bool:
    return any(
        (isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name in _POKES)
        or (isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id in _POKES for t in each.targets))
        for each in _statements(node.body)
    )


def _dotted(node: ast.expr) -> str | None:
    """Return a dotted name (of ``Base[int]`` that of the base), or None."""
    if isinstance(node, ast.Subscript):
        node = node.value
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None
