"""The glossary of docs/concepts.md is complete: each word of a public name stands there, or is plain English."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.parsing import parsed

GLOSSARY = ROOT / "docs" / "concepts.md"
PLAIN = Path(__file__).with_name("plain_words.txt")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_METRIC = re.compile(r"sensorpool_[a-z_]+\Z")
_ONE_WORD = {"QoS": "Qos"}  # Celery's
_COMMANDS = {"command", "group"}  # methods that make a command of a function


def public_names(source: str) -> Iterator[str]:
    """Yield the public names of a module: classes, functions, attributes, constants, metrics and commands."""
    tree = parsed(source)
    yield from _names_in(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _METRIC.match(node.value):
            yield node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COMMANDS:
            yield from (each.value for each in node.args if isinstance(each, ast.Constant))


def _names_in(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
            yield from _names_in(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            yield from _attributes_of_self(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from (name.id for target in _targets(node) for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _names_in(node.body)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _attributes_of_self(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def words_of(name: str) -> set[str]:
    """Split ``some_name`` or ``SomeName`` into words; a private name has none."""
    name = _ONE_WORD.get(name, name)
    return set() if name.startswith("_") else {part.lower() for part in _PARTS.findall(name)}


def singulars(word: str) -> set[str]:
    """Return a word and what it may be the plural of."""
    found = {word}
    if word.endswith("ies"):
        found.add(word[:-3] + "y")
    if word.endswith("es"):
        found.add(word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        found.add(word[:-1])
    return found


def terms(page: str) -> list[str]:
    """Return the terms of the glossary: the first column of its tables, cut at commas."""
    section = page.partition("\n## Glossary\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    return [term.strip() for cell in cells for term in cell.split(",") if cell not in {"term", "---"}]


def plain() -> list[str]:
    """Return the words that mean here what they mean everywhere."""
    return [line for line in PLAIN.read_text().splitlines() if line and not line.startswith("#")]


def unknown(names: set[str], known: set[str]) -> dict[str, list[str]]:
    """Return the words of names that are not known, each with the names it stands in."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        for word in words_of(name):
            if not singulars(word) & known:
                found.setdefault(word, []).append(name)
    return found


def _known() -> set[str]:
    return {word for term in terms(GLOSSARY.read_text()) for word in re.findall(r"[a-z]+", term.lower())} | set(plain())


def test_each_word_of_a_public_name_is_in_the_glossary_or_plain() -> None:
    names = set()
    for path in (ROOT / "sensorpool").rglob("*.py"):
        names.update(path.relative_to(ROOT).with_suffix("").parts)
        names.update(public_names(path.read_text()))
    assert len(names) > 1_000
    assert unknown(names, _known()) == {}, "docs/concepts.md lacks these, or tests/unit/plain_words.txt"


def test_a_term_is_defined_once() -> None:
    found = terms(GLOSSARY.read_text())
    assert len(found) > 100
    assert [term for term in found if found.count(term) > 1] == []


def test_the_plain_words_are_sorted_and_no_terms() -> None:
    found = plain()
    assert found == sorted(set(found))
    assert set(found) & {term for term in terms(GLOSSARY.read_text()) if " " not in term} == set()


SOURCE = """
class Frobnicator:
    mangled: int
    GRIBBLED = "x"

    def quabble(self) -> None:
        self.blurbs = 1
        self._private = 2

async def zonked() -> None: ...
@main.command("spindle")
def _hidden() -> None: ...
SNARK, _b = 1, 2
counter("sensorpool_wibbles", "Help.")
class _Private:
    unseen = 1
"""


def test_this_test_finds_made_up_words() -> None:
    found = unknown(set(public_names(SOURCE)), {"blurb", "sensorpool"})
    assert sorted(found) == ["frobnicator", "gribbled", "mangled", "quabble", "snark", "spindle", "wibbles", "zonked"]
    assert found["frobnicator"] == ["Frobnicator"]


def test_names_are_split_into_words() -> None:
    assert words_of("HTTPSensor_of2Classes") == {"http", "sensor", "of", "classes"}
    assert words_of("_private") == set()
    assert "query" in singulars("queries")
    assert "class" in singulars("classes")
    assert "pass" in singulars("pass")
    assert "pas" not in singulars("pass")
