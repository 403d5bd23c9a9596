"""Paths, modules, `make` targets and links in CONTRIBUTING.md, README.md and the pages of docs/ exist."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.pages import ROOT

CONTRIBUTING, DESIGN = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"
PAGES = [CONTRIBUTING, ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FOLDERS = "benchmarks|docs|harness|sensorpool|tests|tools"
_PATH = re.compile(rf"(?:{_FOLDERS})/[\w./*-]+|[\w./-]+\.(?:py|md|lua|txt|toml)")
_MODULE = re.compile(r"[a-z_]+(?:[./]\w+)+")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
_ROOMS = (ROOT / "sensorpool", ROOT / "sensorpool" / "airflow")


def spans(text: str) -> list[str]:
    """Return the words of a page's code spans, without its fenced blocks."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [word for span in re.findall(r"`([^`]+)`", prose) for word in span.split()]


def drawn(text: str) -> list[str]:
    """Return the words of a page's pictures: fenced blocks of no language."""
    pictures = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [word.strip("`:,;") for picture in pictures for word in picture.split()]


def missing_paths(text: str) -> list[str]:
    """Return the named paths of a page that do not exist; a bare test file may lie in any folder of tests."""
    named = {span.partition("::")[0] for span in spans(text)}
    return sorted(path for path in named if _PATH.fullmatch(path) and not _is_there(path))


def _is_there(path: str) -> bool:
    places = [ROOT.glob(path)] if "/" in path else [ROOT.glob(path), (ROOT / "tests").rglob(path)]
    places.append((ROOT / "examples").rglob(path))
    return any(any(place) for place in places)


def missing_modules(text: str) -> list[str]:
    """Return the modules of the package, or names in them (``worker.job``), that a page names and that do not exist."""
    words = [*spans(text), *drawn(text)]
    named = {word.removeprefix("sensorpool.").replace("/", ".") for word in words if _MODULE.fullmatch(word)}
    return sorted(name for name in named if _is_missing(name.split(".")))


def _is_missing(parts: list[str]) -> bool:
    bases = [base for base in _ROOMS if (base / parts[0]).is_dir()]
    return bool(bases) and not any(_has(base / parts[0], parts[1:]) for base in bases)


def _has(place: Path, parts: list[str]) -> bool:
    if not parts:
        return True
    if place.is_dir():
        below, module = place / parts[0], place / f"{parts[0]}.py"
        if below.is_dir() or module.is_file():
            return _has(below if below.is_dir() else module, parts[1:])
        return re.search(rf"\b{parts[0]}\b", (place / "__init__.py").read_text()) is not None
    return re.search(rf"\b{parts[0]}\b", place.read_text()) is not None


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links of a page to a file or a heading that does not exist."""
    found = []
    for file, heading in _LINK.findall(text):
        target = page.parent / file if file else page
        if not target.exists() or (heading and heading not in headings(target.read_text())):
            found.append(f"{file}#{heading}")
    return found


def headings(text: str) -> set[str]:
    """Return the targets of links within a page: its headings and its anchors."""
    return set(re.findall(r'<a id="([\w-]+)">', text)) | {
        re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert missing_paths(text) == []
    assert broken_links(page, text) == []
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) - targets == set()


@pytest.mark.parametrize("page", [CONTRIBUTING, DESIGN], ids=lambda page: page.name)
def test_the_modules_that_a_page_names_exist(page: Path) -> None:
    assert missing_modules(page.read_text()) == []


def test_every_package_is_in_the_table_of_the_house() -> None:
    packages = {path.parent.name for path in (ROOT / "sensorpool").glob("*/__init__.py")}
    assert packages - set(re.findall(r"^\| \d+ \| `(\w+)` \|", DESIGN.read_text(), re.MULTILINE)) == set()


def test_the_floors_of_the_design_are_those_that_the_linter_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == ["sensorpool"]]
    floors: dict[int, set[str]] = {}
    for floor, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", DESIGN.read_text(), re.MULTILINE):
        floors.setdefault(int(floor), set()).add(name)
    assert [floors[floor] for floor in sorted(floors, reverse=True)] == [set(layer.split(" | ")) for layer in layers]


def test_operations_lists_every_metric() -> None:
    code = "".join(path.read_text() for path in (ROOT / "sensorpool").rglob("*.py"))
    metrics = set(
        re.findall(r"""(?:Counter|Gauge|Histogram)\(\s*"(sensorpool_\w+)"|\(\s*"(sensorpool_\w+)",\s*f?"[A-Z]""", code)
    )
    names = {counter or gauge for counter, gauge in metrics}
    assert len(names) > 15
    page = (ROOT / "docs" / "operations.md").read_text()
    assert {name for name in names if not re.search(rf"`{name}(_total)?[`{{]", page)} == set()


def test_this_test_finds_what_is_not_there() -> None:
    text = "`tests/unit/test_nothing.py`, `test_nowhere.py::case`, `worker.nowhere`, `worker.job.nowhere`, `lua/no.lua`"
    text += " `tests/unit`, `test_due.py`, `model.due.is_due`, `publish.listen`, `a.b` [a](nowhere.md) [b](#heading-1)"
    assert missing_paths(text) == ["lua/no.lua", "test_nowhere.py", "tests/unit/test_nothing.py"]
    assert missing_modules(text) == ["worker.job.nowhere", "worker.nowhere"]
    assert missing_modules("```\nworker.job ─▶ worker.nowhere: there\n```\n") == ["worker.nowhere"]
    assert broken_links(CONTRIBUTING, text) == ["nowhere.md#", "#heading-1"]
    assert broken_links(CONTRIBUTING, f"{text}\n## Heading: 1\n")[1:] == ["#heading-1"]
    assert headings("## Heading: 1\n") == {"heading-1"}
