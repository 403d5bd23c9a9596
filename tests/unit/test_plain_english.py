"""The pages of docs/ name their subjects: no page says that somebody does something, or nobody, or whoever it is."""

import re

import pytest

from tests.support.pages import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
RIDDLES = re.compile(r"\b(?:(?:any|every|no|some)(?:body|one)|no one|who(?:m)?ever)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_who_does_it(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert [f"{number}: {line[:80]}" for number, line in enumerate(lines, 1) if RIDDLES.search(line)] == []


@pytest.mark.parametrize("line", ["Nobody waits.", "whoever registered", "if someone asks", "for everyone who waits"])
def test_this_test_finds_riddles(line: str) -> None:
    assert RIDDLES.search(line)


def test_it_passes_over_other_words() -> None:
    assert not RIDDLES.search("no bodies, one by one, any one of them")
