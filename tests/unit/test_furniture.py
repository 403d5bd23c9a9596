"""Tests and benchmarks wait only for public facts: a private attribute may change its meaning at any time."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.parsing import parsed

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "harness", "benchmarks")


def waited_for(tree: ast.AST) -> Iterator[ast.AST]:
    """Return the conditions for which code waits: of ``while`` and of ``until``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            yield node.test
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "until":
            yield from node.args[1:2]


def private_attributes(node: ast.AST) -> list[str]:
    """Return the private attributes of other objects in an expression."""
    return [
        ast.unparse(each)
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and each.attr.startswith("_")
        and not each.attr.startswith("__")
        and not (isinstance(each.value, ast.Name) and each.value.id in {"self", "cls"})
    ]


def test_nothing_waits_for_a_private_attribute() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{condition.lineno}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for condition in waited_for(parsed(path.read_text()))
        for name in private_attributes(condition)
    ]
    assert found == []


def test_a_private_attribute_would_be_seen() -> None:
    tree = ast.parse(
        "until('x', lambda: not dog._on_guard.is_set())\nwhile log._waiting: pass\nuntil('y', lambda: a.b)"
    )
    assert [name for each in waited_for(tree) for name in private_attributes(each)] == ["log._waiting", "dog._on_guard"]
