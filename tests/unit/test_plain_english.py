"""The pages of docs/ and the code name their subjects: no line says somebody, nobody or whoever."""

import re

import pytest

from tests.support.pages import ROOT

CODE = [
    str(path.relative_to(ROOT))
    for folder in ("sensorpool", "migrations", "harness", "benchmarks", "tools")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".lua"}
]
ACCOUNT = 'getpwnam("nobody")'  # a name of the system
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
RIDDLES = re.compile(r"\b(?:(?:any|every|no|some)(?:body|one)|no one|who(?:m)?ever)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_who_does_it(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert [f"{number}: {line[:80]}" for number, line in enumerate(lines, 1) if RIDDLES.search(line)] == []


def test_the_code_says_who_does_it() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name in CODE
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if RIDDLES.search(line.replace(ACCOUNT, ""))
    ]
    assert found == []


@pytest.mark.parametrize("line", ["Nobody waits.", "whoever registered", "if someone asks", "for everyone who waits"])
def test_this_test_finds_riddles(line: str) -> None:
    assert RIDDLES.search(line)


def test_it_passes_over_other_words() -> None:
    assert not RIDDLES.search("no bodies, one by one, any one of them")
