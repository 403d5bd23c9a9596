"""The actions of the workflows are pinned by their commits: a tag can be moved, and the release may publish."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_action_is_pinned_by_a_commit() -> None:
    lines = [line for path in (ROOT / ".github/workflows").iterdir() for line in path.read_text().splitlines()]
    used = [line.partition("uses:")[2].strip() for line in lines if "uses:" in line]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[\d.]+", each)] == []
