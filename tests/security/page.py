"""What docs/security.md shows is what the tests run: its fenced blocks, each named by its first line."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def block(name: str) -> str:
    """Return the fenced block whose first line is the comment ``name``."""
    for found in re.findall(r"^```\w*\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        first, _, rest = found.partition("\n")
        if first.strip("# -") == name:
            return str(rest)
    raise LookupError(f"docs/security.md has no block {name!r}")
