"""Hooks of the docs' site: links to files of the repository, which are not on the site, become their names."""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace links that lead out of the folder of the docs.

    :raises FileNotFoundError: when there is no such file.
    """
    docs = Path(config["docs_dir"])

    def named(link: re.Match[str]) -> str:
        target = (docs / Path(page.file.src_uri).parent / link[2]).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {link[2]}, which is not there")
        path = target.relative_to(docs.parent)
        said = link[1].strip("`")
        return f"`{path}`" if said in str(path) else f"{link[1]} (`{path}`)"

    return _LINK.sub(named, markdown)
