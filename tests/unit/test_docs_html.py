"""The site shows each list, table and block of code of the docs as GitHub does.

Python-Markdown, which builds the site, knows a list only after a blank line, and what belongs to an item only by an
indent of four.
"""

from html.parser import HTMLParser
from pathlib import Path

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt

from tests.support.pages import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["markdown_extensions"]
EXTENSIONS = {
    name: options for each in SITE for name, options in (each.items() if isinstance(each, dict) else [(each, {})])
}
PAGES = sorted((ROOT / "docs").glob("*.md"))


class Parts(HTMLParser):
    """The text of each item, cell and block of code, with that of what is in it."""

    kinds = ("li", "td", "th", "pre")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._open: list[int] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self.kinds:
            self._open.append(len(self.found))
            self.found.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.kinds:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for number in self._open:
            tag, text = self.found[number]
            self.found[number] = (tag, text + "".join(data.split()))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_has_the_same_parts_on_the_site_as_on_github(page: Path) -> None:
    text = page.read_text()
    on_site = Parts(markdown.markdown(text, extensions=[*EXTENSIONS], extension_configs=EXTENSIONS)).found
    assert on_site == Parts(MarkdownIt("commonmark").enable("table").render(text)).found
