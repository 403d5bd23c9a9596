"""Reads the source of a sensor class, to find out whether its poke looks at the template context."""

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple


class Use(NamedTuple):
    """A use of the template context by a poke. ``only_with``: the argument without which the poke does not use it."""

    what: str
    only_with: str | None


class _Method(NamedTuple):
    """A method to read, and the names of its variables that hold the template context."""

    owner: type
    name: str
    contexts: frozenset[str]
    only_with: str | None


def uses(cls: type, off: Collection[str]) -> Iterator[Use]:
    """Yield the uses of the template context by a class's poke, also in methods of its own that get the context.

    :param off: arguments that are false by default: ``if self.argument:`` guards the uses in its body.
    """
    first = _resolve(cls, "poke", None)
    if first is None:
        return
    seen: set[_Method] = set()
    waiting = [_Method(first, "poke", frozenset(_names_of_arguments(first, "poke")[:1]), None)]
    while waiting:
        method = waiting.pop()
        if method in seen:
            continue
        seen.add(method)
        reader = _Reader(cls, method, frozenset(off))
        reader.visit(_tree(vars(method.owner)[method.name]))
        yield from reader.uses
        waiting += reader.methods


def reaches_base(cls: type, name: str) -> bool:
    """Whether a method reaches the method of BaseSensorOperator, because each one calls the method of its base."""
    owner = _resolve(cls, name, None)
    while owner is not None:
        calls = (node for node in ast.walk(_tree(vars(owner)[name])) if isinstance(node, ast.Call))
        if not any(_is_supers(call.func) and call.func.attr == name for call in calls):  # type: ignore[attr-defined]
            return False
        owner = _resolve(cls, name, owner)
    return True


class _Reader(ast.NodeVisitor):
    """Reads one method."""

    def __init__(self, cls: type, method: _Method, off: frozenset[str]) -> None:
        self.uses: list[Use] = []
        self.methods: list[_Method] = []
        self._cls, self._method, self._off = cls, method, off
        self._only_with = method.only_with

    def visit_If(self, node: ast.If) -> None:
        """Note the argument that guards the body."""
        self.visit(node.test)
        before = self._only_with
        self._only_with = before or self._guard(node.test)
        for statement in node.body:
            self.visit(statement)
        self._only_with = before
        for statement in node.orelse:
            self.visit(statement)

    def visit_Call(self, node: ast.Call) -> None:
        """Follow the context into a method of the class; any other call is a use."""
        method = self._followed(node)
        handed_on = [
            value for value in (*node.args, *(word.value for word in node.keywords)) if self._is_context(value)
        ]
        if handed_on and method is None:
            self._use(f"hands the template context to `{ast.unparse(node.func)}`")
        elif handed_on and method is not None:
            self.methods.append(method)
        if isinstance(node.func, ast.Attribute) and self._is_context(node.func.value) and node.args:
            self._use(f"reads `{_said(node.args[0])}` from the template context")
        else:
            self.visit(node.func)
        for value in (*node.args, *(word.value for word in node.keywords)):
            if value not in handed_on:
                self.visit(value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note a name that is read."""
        if self._is_context(node.value):
            self._use(f"reads `{_said(node.slice)}` from the template context")
            self.visit(node.slice)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Note any other use of the context."""
        if self._is_context(node) and isinstance(node.ctx, ast.Load):
            self._use("uses the template context")

    def _use(self, what: str) -> None:
        self.uses.append(Use(what, self._only_with))

    def _is_context(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._method.contexts

    def _guard(self, test: ast.AST) -> str | None:
        if isinstance(test, ast.Compare) and ast.unparse(test).endswith(" is not None"):
            test = test.left
        is_argument = isinstance(test, ast.Attribute) and ast.unparse(test) == f"self.{test.attr}"
        return test.attr if is_argument and test.attr in self._off else None  # type: ignore[attr-defined]

    def _followed(self, call: ast.Call) -> _Method | None:
        """Return the called method of the class, if it is clear which arguments hold the context; otherwise None."""
        if not isinstance(call.func, ast.Attribute):
            return None
        name = call.func.attr
        if _is_supers(call.func):
            owner = _resolve(self._cls, name, self._method.owner)
        elif isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
            owner = _resolve(self._cls, name, None)
        else:
            owner = None
        if owner is None:
            return None
        arguments = _names_of_arguments(owner, name)
        contexts = {arguments[at] for at, value in enumerate(call.args[: len(arguments)]) if self._is_context(value)}
        contexts |= {word.arg for word in call.keywords if self._is_context(word.value) and word.arg in arguments}
        going = sum(map(self._is_context, (*call.args, *(word.value for word in call.keywords))))
        return _Method(owner, name, frozenset(contexts), self._only_with) if len(contexts) == going else None


def _said(node: ast.AST) -> str:
    return ast.unparse(node).strip("'\"")


def _is_supers(function: ast.AST) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "super()"


def _resolve(cls: type, name: str, after: type | None) -> type | None:
    """Return the class of a provider that defines a method, or None."""
    mro = cls.__mro__ if after is None else cls.__mro__[cls.__mro__.index(after) + 1 :]
    owner = next((base for base in mro if name in vars(base)), None)
    of_provider = owner is not None and owner.__module__.startswith("airflow.providers.")
    return owner if of_provider and inspect.isroutine(vars(owner)[name]) else None


def _names_of_arguments(owner: type, name: str) -> list[str]:
    """Return the names of a method's arguments, without ``self``."""
    function = vars(owner)[name]
    names = list(inspect.signature(inspect.unwrap(getattr(function, "__func__", function))).parameters)
    return names if isinstance(function, staticmethod) else names[1:]


def _tree(function: Any) -> ast.AST:
    function = inspect.unwrap(getattr(function, "__func__", function))
    return ast.parse(textwrap.dedent(inspect.getsource(function)))
