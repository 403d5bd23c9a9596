"""Readers of the documents: their fenced blocks, and the command lines in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELLS = ("sh", "console")


def blocks(page: str, *languages: str) -> list[str]:
    """Return the fenced blocks of a page in these languages."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^ *```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [text for _, language, text in found if language in languages]


def command_lines(block: str) -> list[str]:
    """Return the commands of a block, without prompts and comments."""
    lines = (line.strip().removeprefix("$ ").partition(" #")[0].strip() for line in block.splitlines())
    return [line for line in lines if line]
