"""No function reads a local before it has a value where the module has the same name.

Linters and type checkers take such a name for the module's; at run time it is an UnboundLocalError.
"""

import ast
import math
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

from sensorpool import __file__ as package

ROOT = Path(package).parent
MODULES = sorted(ROOT.rglob("*.py"))


def unbound(text: str) -> list[str]:
    """Return the names of locals that are read in a line before the first that gives them a value."""
    top = symtable.symtable(text, "module", "exec")
    of_module = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    functions = {
        (node.name, node.lineno): node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return [
        f"{scope.get_name()}: {name}"
        for scope in _scopes(top)
        if (node := functions.get((scope.get_name(), scope.get_lineno()))) is not None
        for name in _locals(scope) & of_module
        if _first(node, name, ast.Load) < _first(node, name, ast.Store)
    ]


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _scopes(child)


def _locals(scope: symtable.SymbolTable) -> set[str]:
    found = (each for each in scope.get_symbols() if each.is_local() and not each.is_parameter())
    return {each.get_name() for each in found if each.is_assigned() and not each.is_imported()}


def _first(node: ast.AST, name: str, context: type[ast.expr_context]) -> float:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    found = [each.lineno for each in names if each.id == name and isinstance(each.ctx, context)]
    return min(found, default=math.inf)


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_no_local_is_read_before_it_has_a_value(path: Path) -> None:
    assert unbound(path.read_text()) == []


def test_one_would_be_found() -> None:
    text = "from a import said\n{}def f(x):\n    print(said(x))\n    if x:\n        said = 1\n"
    assert unbound(text.format("")) == ["f: said"]
    assert unbound(text.format("@staticmethod\n")) == ["f: said"]
